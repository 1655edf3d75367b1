"""Compares a measurement with its baseline: one line per metric; the worst line is the verdict.

Small on purpose, and replaceable: anything that returns a Verdict can be the judge. rules/ compares the numbers of one
metric.

Statuses, worst first
    failed        the cell ended without a measurement, or a number is not finite
        incomparable  measured under other conditions than the baseline's
    missing       there is no baseline, or a metric is on one side only
    regressed     worse than allowed, or too wrong to be a first baseline without a reason
        improved      a deterministic metric is better: the baseline is stale until this is accepted
    alarm         a stored time cannot rule out a slow-down after something changed: a trial decides
        undecided     the trial could not run, or could not decide
        machine       a time is slower than the baseline's, although nothing but the machine's state can differ
        unheld        no baseline exists for this machine's CPU kernels, or for an emulated GPU: neither good nor bad
    immaterial    an exact metric differs by less than matters: shown and counted, and the baseline stays as it is
    ok            as good as the baseline; a faster step is ok too
        unsupported   neither the baseline nor this run can run the cell with these versions or this machine
OPEN ones are neither green nor red. A metric without a limit has no line if it exists and is finite. A line can also be
"not held": the baseline has no time of this machine, the metric is new, or neither side could count it.
"""

from collections.abc import Iterable, Sequence
from typing import get_args

import msgspec

from perfsuite.catalog.definitions import Metric
from perfsuite.gate.capacity import most_of, say_headroom, what_grew
from perfsuite.gate.gather import believed
from perfsuite.gate.lines import Scope, changes
from perfsuite.gate.pool import Times, changed_since, own_code_since
from perfsuite.gate.rules import hold, why_wrong
from perfsuite.gate.rules._undefined import RULE as UNDEFINED
from perfsuite.gate.terms import Terms, terms_of
from perfsuite.records.baseline import Baseline, TimedRun
from perfsuite.records.measurement import EMULATED, OWN_CODE, STEP_TIME, Measurement
from perfsuite.records.verdict import CellStatus, Line, Status, Verdict
from perfsuite.units import show_bytes, show_number
from perfsuite.wire.sample import is_number

ORDER: tuple[Status, ...] = get_args(CellStatus)
OPEN = frozenset({"alarm", "undecided", "machine", "unheld"})  # neither green nor red
EQUAL = frozenset({"ok", "unsupported"})  # nothing differs that could have a cause
GREEN = frozenset({"ok", "immaterial"})
RED = frozenset(ORDER) - OPEN - GREEN - {"unsupported"}  # statuses that fail a test
NOT_HELD = "not held"  # of a line
COMMAND = "pytest --perf"  # collects the cells of the default tests
OUTCOMES = ("unsupported", "oom", "fits")  # worst first
NEED_A_REASON = ("regressed", "all")  # consents that may lower the bar: the ledger records why
CONSENTS = {
    "incomparable": "all",
    "missing": "all",
    "regressed": "regressed",
    "improved": "improved",
}


def judge(
    measurement: Measurement,
    baseline: Baseline | None,
    metrics: Iterable[Metric],
    *,
    strategy: str,
    terms: Terms | None = None,
    code: str = "",
    command: str = COMMAND,
    unheld: str = "",
    kept: Sequence[TimedRun] = (),
) -> Verdict:
    """Return the verdict on a measured cell.

    ``strategy`` is the canonical name; its precision bounds the loss. Times are compared on the ``terms``, by default
    those of the cell's class of hardware. ``code`` says how the user's own code differs from the baseline's, if it
    does. ``command`` collects the cell's test. ``unheld`` says why a cell without a baseline is not compared; it is
    empty if its baseline is missing. ``kept`` are runs of this machine beside the baseline's.
    """
    return with_command(_judge(measurement, baseline, list(metrics), strategy, terms, code, unheld, kept), command)


def with_command(verdict: Verdict, command: str) -> Verdict:
    """The verdict with the whole command that accepts it, instead of the consent alone."""
    if not verdict.accept:
        return verdict
    return msgspec.structs.replace(verdict, accept=f"{command} -k {verdict.cell} --perf-update={verdict.accept}")


def _judge(
    measurement: Measurement,
    baseline: Baseline | None,
    metrics: list[Metric],
    strategy: str,
    terms: Terms | None,
    code: str,
    unheld: str,
    kept: Sequence[TimedRun],
) -> Verdict:
    """The same, with the consent alone that accepts it."""
    if measurement.outcome not in OUTCOMES:
        return _verdict(measurement, baseline, "failed", f"failed: {_reason(measurement)}")
    if baseline is None:
        return _without_baseline(measurement, metrics, strategy, unheld)
    old = baseline.measurement
    obstacle = _obstacle(measurement, baseline)
    if obstacle:
        return _verdict(measurement, baseline, "incomparable", f"incomparable, {obstacle}")
    if measurement.outcome != "fits" or old.outcome != "fits":
        return _judge_outcome(measurement, baseline)
    times = Times.of(baseline, measurement, metrics, terms or terms_of(measurement.cell), kept)
    changed = [*([code] if code else []), *changed_since(times.reference, measurement)]
    own_code = own_code_since(times.reference, measurement)
    own, drifted, since = times.own, times.drifted, times.own[0].date if times.own else ""
    scope = Scope(measurement, old, strategy, terms, own, changed, own_code, drifted, since)
    held = [one for one in _all_metrics(metrics, measurement, old) if believed(one, measurement.machine)]
    lines = [hold(metric, scope) for metric in held]
    return verdict_of(measurement, baseline, [line for line in lines if line], metrics, code)


def verdict_of(
    measurement: Measurement,
    baseline: Baseline,
    lines: list[Line],
    metrics: Iterable[Metric],
    code: str = "",
    stale: bool = True,
) -> Verdict:
    """The verdict of these lines. ``stale``: an improvement is red until it is accepted."""
    if not lines:
        return _verdict(measurement, baseline, "missing", "no metric is defined, so nothing was compared")
    timed = {metric.name for metric in metrics if metric.hold == "time"}
    faster = [line.status == "improved" and (line.metric in timed or not stale) for line in lines]
    statuses: list[Status] = ["ok" if good else line.status for line, good in zip(lines, faster, strict=True)]
    held = [status for status in statuses if status != NOT_HELD]
    worst: Status = min(held, key=ORDER.index, default="ok")
    verdict = _verdict(measurement, baseline, worst, _count(lines, statuses, worst), lines)
    if code and worst in RED | OPEN:
        return msgspec.structs.replace(verdict, changed=[*verdict.changed, code])
    return verdict


def _all_metrics(metrics: Iterable[Metric], new: Measurement, old: Measurement) -> list[Metric]:
    """The defined metrics, then the readings without a Metric: those cannot be compared, which is red."""
    known = list(metrics)
    lost = (old.readings.keys() | new.readings.keys()).difference([metric.name for metric in known])
    return known + [
        Metric(name=name, title=name, show=show_number, hold="undefined", rule=UNDEFINED) for name in sorted(lost)
    ]


def _count(lines: list[Line], statuses: list[Status], worst: Status) -> str:
    """``1 of 4 metrics regressed, 1 improved``; metrics that are not held do not count."""
    not_held = [line.title for line in lines if line.status == NOT_HELD]
    parts = [f"{statuses.count(worst)} of {len(lines) - len(not_held)} metrics {worst}"]
    others = [other for other in ORDER if other in statuses and other not in (worst, "ok", "unsupported")]
    parts += [f"{statuses.count(other)} {other}" for other in others]
    return ", ".join(parts) + (f" ({', '.join(not_held)} not held)" if not_held else "")


def _reason(measurement: Measurement) -> str:
    return measurement.failure.message if measurement.failure else "no reason was recorded."


def _ending(measurement: Measurement) -> str:
    """The outcome, with the bytes that were missing."""
    failure = measurement.failure
    if measurement.outcome != "oom" or failure is None or failure.missing_bytes is None:
        return measurement.outcome
    where = f", most of it {most_of(failure.parts)}" if failure.parts else ""
    return f"oom, at least {show_bytes(failure.missing_bytes)} missing{where}"


def _without_baseline(measurement: Measurement, metrics: Iterable[Metric], strategy: str, unheld: str) -> Verdict:
    for metric in metrics:
        reading = measurement.readings.get(metric.name)
        if reading and (reason := why_wrong(metric, reading, strategy)):
            return _verdict(measurement, None, "regressed", f"there is no baseline, and {reason}")
    if measurement.outcome == "unsupported":
        return _verdict(measurement, None, "unsupported", f"unsupported: {_reason(measurement)}")
    if unheld:
        return _verdict(measurement, None, "unheld", unheld)
    if measurement.machine.emulated and measurement.outcome == "fits":
        return _verdict(measurement, None, "unheld", "fits, and there is no baseline of a real GPU")
    tale = ", and it ran out of memory" if measurement.outcome == "oom" else ""
    detail = f" ({_ending(measurement)}: {_reason(measurement)})" if tale else ""
    return _verdict(measurement, None, "missing", f"there is no baseline{tale}{detail}")


def _obstacle(new: Measurement, baseline: Baseline) -> str:
    """Why the two cannot be compared, and the way out; empty if they can."""
    old = baseline.measurement
    if not new.cell == baseline.cell == old.cell:
        return f"the baseline is that of {baseline.cell}."
    if old.outcome not in OUTCOMES:
        return f"the baseline has an outcome {old.outcome!r}: delete it."
    if new.world_size != old.world_size:
        return f"{new.world_size} ranks against the baseline's {old.world_size}."
    if not new.outcome == old.outcome == "fits" or STEP_TIME not in new.readings:
        return ""
    time = new.readings[STEP_TIME]
    if not all(is_number(number) for number in (time.value, *time.samples) if number is not None):
        return ""  # its rule says that
    here, there = (one.steps for one in (new, old))
    if 0 < here < there:
        return f"{here} timed steps against the baseline's {there}: give --perf-steps={there} or more (perf_steps)."
    if new.warmup is not None and old.warmup is not None and new.warmup < old.warmup:
        return (
            f"{new.warmup} warm-up steps against the baseline's {old.warmup}: give --perf-warmup={old.warmup} or more."
        )
    return ""


def _judge_outcome(new: Measurement, baseline: Baseline) -> Verdict:
    """One of the two does not fit: only the outcomes decide."""
    old = baseline.measurement
    difference = OUTCOMES.index(new.outcome) - OUTCOMES.index(old.outcome)
    if difference == 0:
        status: Status = "unsupported" if new.outcome == "unsupported" else "ok"
        return _verdict(new, baseline, status, f"{_ending(new)}, like its baseline: {_reason(new)}")
    status = "improved" if difference > 0 else "regressed"
    reason = f": {_reason(new)}" if new.failure else ""
    line = Line(
        metric="outcome",
        title="outcome",
        status=status,
        old=old.outcome,
        new=new.outcome,
        change="",
        allowed="",
        note=what_grew(new, old) if new.outcome == "oom" else "",
    )
    return _verdict(new, baseline, status, f"{old.outcome} -> {_ending(new)}{reason}", [line])


def _verdict(
    measurement: Measurement,
    baseline: Baseline | None,
    status: Status,
    headline: str,
    lines: Iterable[Line] = (),
) -> Verdict:
    consents = CONSENTS if baseline else {"missing": "new", "unheld": "new", "regressed": "regressed"}
    accept = consents.get(status, "")
    if measurement.capacity_bytes is not None or measurement.machine.emulated:
        accept = ""  # a baseline is for the hardware, not for a cap on it or an emulation of it
    emulated = EMULATED if measurement.machine.emulated else ""
    return Verdict(
        cell=measurement.cell,
        status=status,
        headline=f"{measurement.cell}: {emulated}{headline}",
        lines=list(lines),
        changed=what_changed(measurement, baseline.measurement) if baseline and status not in EQUAL else [],
        accept=accept,
        headroom=say_headroom(measurement),
    )


def what_changed(new: Measurement, old: Measurement) -> list[str]:
    """Possible causes: versions, flags, the driver, the device. A cell without a measurement has no versions and no
    flags; an old baseline has no flags.
    """
    versions = changes(old.versions, new.versions) if new.versions else []
    flags = changes(old.flags | {OWN_CODE: ""}, new.flags | {OWN_CODE: ""}) if old.flags and new.flags else []
    flags += [own] if (own := own_code_since(old, new)) else []
    sides = [{"driver": one.machine.driver or "none", "device": one.machine.device} for one in (old, new)]
    return versions + flags + changes(*sides)
