"""The new baseline after a measurement is accepted: exact metrics and times are accepted separately."""

from collections.abc import Iterable, Sequence

import msgspec

from perfsuite.baselines.drift import worse_without_reason
from perfsuite.baselines.ledger import LedgerEntry
from perfsuite.catalog.definitions import Metric
from perfsuite.compare.machines import others_share
from perfsuite.compare.pool import changed_since, run_of, runs_of, with_run, with_times
from perfsuite.errors import FileError
from perfsuite.records.baseline import Baseline
from perfsuite.records.formats import FORMAT, timestamp
from perfsuite.records.measurement import Measurement
from perfsuite.records.verdict import Consent, Status, Verdict
from perfsuite.settings.keys import BUSY_SHARE
from perfsuite.system.units import listed


def baseline_of(
    measurement: Measurement, commit: str, metrics: Iterable[Metric], most_busy: float = BUSY_SHARE.default
) -> Baseline:
    """The measurement of the tree at that commit as a baseline, dated by its last launch. Its run has no times if
    others used more than that share of the machine: exact metrics do not mind, and times would be wrong for ever.
    """
    run = run_of(measurement, metrics, commit)
    if others_share(measurement) > most_busy:
        run = msgspec.structs.replace(run, values={})
    made = Baseline(
        format=FORMAT,
        cell=measurement.cell,
        date=measurement.launches[-1].date if measurement.launches else timestamp(),
        commit=commit,
        measurement=measurement,
    )
    return with_times(made, [run] if measurement.outcome == "fits" else [])


def accepted(
    new: Baseline, old: Baseline | None, metrics: Iterable[Metric], verdict: Verdict, consent: str, reason: str
) -> Baseline | None:
    """The baseline that replaces ``old`` under that consent; None if nothing changes.

    Times are kept, unless the consent is "all", or a trial found a time slower and the regression is accepted:
    accepting memory does not accept speed. "times" adds this run to those of the same environment, or, with a reason,
    starts again with runs of a new environment.
    """
    metrics = list(metrics)
    if old is None or consent == Consent.ALL:
        return new
    if consent == Consent.TIMES:
        if not new.measurement.outcome == old.measurement.outcome == "fits":
            return None
        run = runs_of(new, metrics)[-1]
        if not run.values:
            return None
        if not changed_since(runs_of(old, metrics)[-1], new.measurement):
            return with_run(old, run, metrics)
        return with_times(old, [run]) if reason else None
    timed = {metric.name for metric in metrics if metric.is_time}
    slower = any(line.metric in timed and line.status == Status.REGRESSED for line in verdict.lines)
    if consent == Consent.REGRESSED and slower:
        return new
    return with_times(new, runs_of(old, metrics))


def check_without_reason(
    entries: Sequence[LedgerEntry], new: Measurement, metrics: Iterable[Metric], is_gone: bool
) -> None:
    """Raise FileError if nobody can accept the measurement without a reason: what the ledger's lines on the cell had
    accepted is gone, or small steps have made it worse.
    """
    if is_gone and entries:
        raise FileError(
            f"{new.cell} has no baseline, but the ledger knows one that was accepted. Restore it from git, or say "
            'why a new one replaces it: --perf-reason="…"'
        )
    if worse := [] if is_gone else worse_without_reason(entries, new, metrics):
        raise FileError(
            f"{new.cell} is better, but {listed(metric.title for metric in worse)} got worse by what matters, in small "
            'steps since the last reason. Say why: --perf-reason="…"'
        )


def check_open_times(verdict: Verdict) -> None:
    """Raise FileError if the cell is better by one metric, and nothing has decided whether a time is worse: the change
    that a trial could take back would be accepted with it.
    """
    waiting = [line.title for line in verdict.lines if line.status == Status.OPEN]
    if verdict.status == Status.IMPROVED and waiting:
        raise FileError(
            f"{verdict.cell} is better, but {listed(waiting)} may be worse, and no trial has decided it. "
            'Say why: --perf-reason="…"'
        )
