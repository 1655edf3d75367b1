"""Holds a measurement to its baseline: one line per metric, the worst of them is the verdict.

Small on purpose, and replaceable: whatever returns a Verdict can be the judge. How a metric's numbers are compared is
in rules.py.

Statuses, worst first
    failed        the cell ended without a measurement, or a number is not finite
    incomparable  measured under other conditions than the baseline
    missing       there is no baseline, or a metric is on one side only
    regressed     worse than allowed
    suspected     slower than allowed in every launch so far, and more launches must confirm it
    unstable      the baseline's launches spread so wide that they say nothing
    improved      a deterministic metric is better: the baseline is stale until that is accepted
    ok            as good as the baseline; a faster step is ok too
    unsupported   this machine or these versions cannot run the cell, and never could
A metric without a limit has no line as long as it is there and finite. A line can also be "not held", the baseline's
time is another machine's or of one launch, or "excused", the machine itself got slower, by its control workload.
"""

from collections.abc import Iterable

import msgspec

from perfsuite.catalog.definitions import Metric
from perfsuite.gate.capacity import most_of, say_headroom, what_grew
from perfsuite.gate.lines import Scope, changes
from perfsuite.gate.rules import hold
from perfsuite.records import Baseline, Line, Measurement, Verdict
from perfsuite.units import show_bytes, show_number

ORDER = ("failed", "incomparable", "missing", "regressed", "suspected", "unstable", "improved", "ok", "unsupported")
LET_GO = frozenset({"not held", "excused"})  # of lines: neither good nor bad
RED = frozenset(ORDER) - {"ok", "unsupported"}  # statuses that fail a test
COMMAND = "pytest --perf"  # collects the cells of the default tests
OUTCOMES = ("unsupported", "oom", "fits")  # worst first
NEED_A_REASON = ("regressed", "all")  # consents that lower the bar: the ledger says why
CONSENTS = {
    "incomparable": "all",
    "missing": "all",
    "unstable": "all",
    "regressed": "regressed",
    "improved": "improved",
}


def judge(
    measurement: Measurement,
    baseline: Baseline | None,
    metrics: Iterable[Metric],
    *,
    strategy: str,
    time_tolerance: float,
    command: str = COMMAND,
) -> Verdict:
    """Return what is to be said of a measured cell.

    ``strategy`` is the canonical name, whose precision bounds the loss; ``time_tolerance`` the relative slow-down that
    is allowed on top of the noise. ``command`` is what collects the cell's test.
    """
    verdict = _judge(measurement, baseline, metrics, strategy, time_tolerance)
    if not verdict.accept:
        return verdict
    return msgspec.structs.replace(verdict, accept=f"{command} -k {verdict.cell} --perf-update={verdict.accept}")


def _judge(
    measurement: Measurement,
    baseline: Baseline | None,
    metrics: Iterable[Metric],
    strategy: str,
    time_tolerance: float,
) -> Verdict:
    """The same, with the consent alone that accepts it."""
    if measurement.outcome not in OUTCOMES:
        return _verdict(measurement, baseline, "failed", f"failed: {_reason(measurement)}")
    if baseline is None:
        return _without_baseline(measurement)
    old = baseline.measurement
    obstacle = _obstacle(measurement, baseline)
    if obstacle:
        return _verdict(measurement, baseline, "incomparable", f"incomparable, {obstacle}")
    if measurement.outcome != "fits" or old.outcome != "fits":
        return _judge_outcome(measurement, baseline)
    scope = Scope(measurement, old, strategy, time_tolerance)
    lines, statuses = [], []
    for metric in _all_metrics(metrics, measurement, old):
        line = hold(metric, scope)
        if line is not None:
            lines.append(line)
            status = line.status
            harmless = status in LET_GO or (status == "improved" and metric.hold == "time")
            statuses.append("ok" if harmless else status)
    if not lines:
        return _verdict(measurement, baseline, "missing", "no metric is defined, so nothing was held")
    worst = min(dict.fromkeys(statuses), key=ORDER.index)
    return _verdict(measurement, baseline, worst, _count(lines, statuses, worst), lines)


def _all_metrics(metrics: Iterable[Metric], new: Measurement, old: Measurement) -> list[Metric]:
    """The defined metrics, then the readings that no Metric defines any more: those cannot be held, which is red."""
    known = list(metrics)
    lost = (old.readings.keys() | new.readings.keys()).difference([metric.name for metric in known])
    return known + [Metric(name=name, title=name, show=show_number, hold="undefined") for name in sorted(lost)]


def _count(lines: list[Line], statuses: list[str], worst: str) -> str:
    """``1 of 4 metrics regressed, 1 improved``; the metrics that are not held do not count."""
    let_go = [f"{line.title} {line.status}" for line in lines if line.status in LET_GO]
    here = dict.fromkeys(statuses)
    own = statuses.count(worst) - (len(let_go) if worst == "ok" else 0)  # lines that are let go count as ok
    parts = [f"{own} of {len(lines) - len(let_go)} metrics {worst}"]
    if len(here) > 1:
        others = [other for other in ORDER if other in here and other in RED and other != worst]
        parts += [f"{statuses.count(other)} {other}" for other in others]
    return ", ".join(parts) + (f" ({', '.join(let_go)})" if let_go else "")


def _reason(measurement: Measurement) -> str:
    return measurement.failure.message if measurement.failure else "it left no reason."


def _ending(measurement: Measurement) -> str:
    """The outcome, with the bytes that were missing."""
    failure = measurement.failure
    if measurement.outcome != "oom" or failure is None or failure.missing_bytes is None:
        return measurement.outcome
    where = f", most of it {most_of(failure.parts)}" if failure.parts else ""
    return f"oom, at least {show_bytes(failure.missing_bytes)} missing{where}"


def _without_baseline(measurement: Measurement) -> Verdict:
    if measurement.outcome == "unsupported":
        return _verdict(measurement, None, "unsupported", f"unsupported: {_reason(measurement)}")
    tale = ", and it ran out of memory" if measurement.outcome == "oom" else ""
    detail = f" ({_ending(measurement)}: {_reason(measurement)})" if tale else ""
    return _verdict(measurement, None, "missing", f"there is no baseline{tale}{detail}")


def _obstacle(new: Measurement, baseline: Baseline) -> str:
    """Why the two cannot be compared, and what to do; empty if they can."""
    old = baseline.measurement
    if not new.cell == baseline.cell == old.cell:
        return f"the baseline is of {baseline.cell}."
    if old.outcome not in OUTCOMES:
        return f"the baseline holds an outcome {old.outcome!r}: delete it."
    if new.world_size != old.world_size:
        return f"{new.world_size} ranks against the baseline's {old.world_size}."
    return ""


def _judge_outcome(new: Measurement, baseline: Baseline) -> Verdict:
    """One of the two does not fit: better or worse is a matter of the outcome alone."""
    old = baseline.measurement
    difference = OUTCOMES.index(new.outcome) - OUTCOMES.index(old.outcome)
    if difference == 0:
        status = "unsupported" if new.outcome == "unsupported" else "ok"
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
    status: str,
    headline: str,
    lines: Iterable[Line] = (),
) -> Verdict:
    accept = "new" if baseline is None and status == "missing" else "" if baseline is None else CONSENTS.get(status, "")
    if measurement.capacity_bytes is not None:
        accept = ""  # a baseline is of the hardware, not of a cap on it
    return Verdict(
        cell=measurement.cell,
        status=status,
        headline=f"{measurement.cell}: {headline}",
        lines=list(lines),
        changed=what_changed(measurement, baseline.measurement) if baseline and status in RED else [],
        accept=accept,
        headroom=say_headroom(measurement),
    )


def what_changed(new: Measurement, old: Measurement) -> list[str]:
    """What may be to blame: versions, flags, the driver, the device. A cell without a measurement knows no versions,
    and neither it nor an old baseline any flags.
    """
    versions = changes(old.versions, new.versions) if new.versions else []
    flags = changes(old.flags, new.flags) if old.flags and new.flags else []
    sides = [{"driver": one.machine.driver or "none", "device": one.machine.device} for one in (old, new)]
    return versions + flags + changes(*sides)
