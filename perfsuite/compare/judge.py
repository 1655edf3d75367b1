"""Compares a measurement with its baseline: one line per metric; the worst line is the verdict.

Small on purpose, and replaceable: anything that returns a Verdict can be the judge. rules/ compares the numbers of one
metric.

Statuses, worst first
    failed        the cell ended without a measurement, or a number is not finite
    incomparable  measured under other conditions than the baseline's
    missing       there is no baseline, or a metric is on one side only
    regressed     worse than allowed, or too wrong to be a first baseline without a reason
    improved      a deterministic metric is better: the baseline is stale until this is accepted
    open          a time: a slow-down is neither shown nor ruled out, since noise or the limit of time left it open; or
                  it is slower than the baseline's, although nothing but the machine's state can differ
    not compared  no baseline exists for this machine's CPU kernels, or for an emulated GPU: neither good nor bad
    immaterial    an exact metric differs by less than matters: shown and counted, and the baseline stays as it is
    ok            as good as the baseline; a faster step is ok too
    unsupported   neither the baseline nor this run can run the cell with these versions or this machine
OPEN ones are neither green nor red. A metric without a limit has no line if it exists and is finite. A line that is
"not compared" does not count: the baseline has no time of this machine, the metric is new, or neither side could count
it. An incomparable time is a question without an answer: something differs that cannot be reverted here.
"""

from collections.abc import Iterable, Sequence

import msgspec

from perfsuite.catalog.definitions import Metric
from perfsuite.compare.capacity import headroom, what_grew
from perfsuite.compare.gather import believed
from perfsuite.compare.installations import changed_versions
from perfsuite.compare.less_work import without_less_work
from perfsuite.compare.origins import with_origins
from perfsuite.compare.pool import Times, changed_since, own_code_since
from perfsuite.compare.rules import compare_metric, why_wrong
from perfsuite.compare.rules._undefined import RULE as UNDEFINED
from perfsuite.compare.scope import Scope, changes
from perfsuite.compare.terms import Terms, terms_of
from perfsuite.records.baseline import Baseline, TimedRun
from perfsuite.records.change import NONE, Change, ChangeKind
from perfsuite.records.measurement import STEP_TIME, Measurement, Outcome
from perfsuite.records.reasons import (
    Ended,
    FewerSteps,
    LessWarmup,
    NoBaseline,
    NoMetric,
    NoRealGpu,
    OtherCell,
    OtherKernels,
    OtherRanks,
    Reason,
    UnknownOutcome,
)
from perfsuite.records.sample import is_number
from perfsuite.records.verdict import EQUAL, OPEN, ORDER, RED, Consent, Line, Status, Verdict
from perfsuite.system.units import BYTES, NUMBER

COMMAND = "pytest --perf"  # collects the cells of the default tests
OUTCOMES = ("unsupported", "oom", "fits")  # worst first
OUTCOME = "outcome"  # the line of a cell of which one side does not fit
CONSENTS = {
    Status.INCOMPARABLE: Consent.ALL,
    Status.MISSING: Consent.ALL,
    Status.REGRESSED: Consent.REGRESSED,
    Status.IMPROVED: Consent.IMPROVED,
}
FIRST_CONSENTS = {
    Status.MISSING: Consent.NEW,
    Status.NOT_COMPARED: Consent.NEW,
    Status.REGRESSED: Consent.REGRESSED,
}  # without a baseline


def judge(
    measurement: Measurement,
    baseline: Baseline | None,
    metrics: Iterable[Metric],
    *,
    strategy: str,
    terms: Terms | None = None,
    code: Change | None = None,
    unheld: str = "",
    kept: Sequence[TimedRun] = (),
) -> Verdict:
    """Return the verdict on a measured cell.

    ``strategy`` is the canonical name; its precision bounds the loss. Times are compared on the ``terms``, by default
    those of the cell's class of hardware. ``code`` is how the user's own code differs from the baseline's, if it does.
    ``unheld`` names the kernels for which a cell without a baseline has none; it is empty if its baseline is missing.
    ``kept`` are runs of this machine beside the baseline's.
    """
    metrics = list(metrics)
    if measurement.outcome not in OUTCOMES:
        verdict = _verdict(measurement, baseline, Status.FAILED, _ended(measurement))
    elif baseline is None:
        verdict = _without_baseline(measurement, metrics, strategy, unheld)
    elif obstacle := _obstacle(measurement, baseline):
        verdict = _verdict(measurement, baseline, Status.INCOMPARABLE, obstacle)
    elif measurement.outcome != "fits" or baseline.measurement.outcome != "fits":
        verdict = _judge_outcome(measurement, baseline)
    else:
        old, terms = baseline.measurement, terms or terms_of(measurement.cell)
        times = Times.of(baseline, measurement, metrics, terms, kept)
        changed = [*([code] if code else []), *changed_since(times.reference, measurement)]
        own_code, since = own_code_since(times.reference, measurement), times.own[0].date if times.own else ""
        scope = Scope(measurement, old, strategy, terms, times.own, changed, own_code, times.drifted, since)
        compared = [one for one in _all_metrics(metrics, measurement, old) if believed(one, measurement.machine)]
        found = [line for metric in compared if (line := compare_metric(metric, scope))]
        lines = with_origins(without_less_work(found, compared, old, measurement), old, measurement)
        verdict = verdict_of(measurement, baseline, lines, metrics)
        if code and verdict.lines and verdict.status in RED | OPEN:
            verdict = msgspec.structs.replace(verdict, changed=[*verdict.changed, code])
        if any(line.status == Status.OPEN for line in verdict.lines):
            # Its times may be of a run that is later than the rest of the baseline.
            verdict = msgspec.structs.replace(verdict, changed=_joined(verdict.changed, changed))
    return msgspec.structs.replace(verdict, collect=COMMAND)


def _joined(changed: Sequence[Change], others: Iterable[Change]) -> list[Change]:
    """The changes, and those of the others whose names they lack."""
    known = {change.name for change in changed}
    return [*changed, *(change for change in others if change.name not in known)]


def verdict_of(
    measurement: Measurement,
    baseline: Baseline,
    lines: list[Line],
    metrics: Iterable[Metric],
    stale: bool = True,
) -> Verdict:
    """The verdict of these lines. ``stale``: an improvement is red until it is accepted."""
    if not lines:
        return _verdict(measurement, baseline, Status.MISSING, NoMetric())
    timed = {metric.name for metric in metrics if metric.is_time}
    worst = min(standings(lines, timed, stale), key=ORDER.index, default=Status.OK)
    return _verdict(measurement, baseline, worst, None, lines)


def standings(lines: Iterable[Line], timed: Iterable[str], stale: bool = True) -> list[Status]:
    """What each line that is held counts as: a faster time is ok, and so is an improvement that makes nothing stale."""
    timed = set(timed)
    return [
        Status.OK if line.status == Status.IMPROVED and (line.metric in timed or not stale) else line.status
        for line in lines
        if line.status != Status.NOT_COMPARED
    ]


def _all_metrics(metrics: Iterable[Metric], new: Measurement, old: Measurement) -> list[Metric]:
    """The defined metrics, then the readings without a Metric: those cannot be compared, which is red."""
    known = list(metrics)
    lost = (old.readings.keys() | new.readings.keys()).difference([metric.name for metric in known])
    return known + [Metric(name, name, NUMBER, hold="undefined", rule=UNDEFINED) for name in sorted(lost)]


def _ended(measurement: Measurement, kind: type[Ended] = Ended, recorded: Outcome | None = None) -> Ended:
    """How the cell ended, with its message and, if memory ran out, what was missing and the largest category."""
    failure = measurement.failure
    ended = kind(outcome=measurement.outcome, recorded=recorded, message=failure.message if failure else "")
    if ended.outcome != "oom" or failure is None or failure.missing_bytes is None:
        return ended
    part, size = max(failure.parts.items(), key=lambda part: part[1], default=("", 0))
    return msgspec.structs.replace(ended, missing_bytes=failure.missing_bytes, part=part, part_bytes=size)


def _without_baseline(measurement: Measurement, metrics: Iterable[Metric], strategy: str, unheld: str) -> Verdict:
    for metric in metrics:
        reading = measurement.readings.get(metric.name)
        if reading and (wrong := why_wrong(metric, reading, strategy)):
            return _verdict(measurement, None, Status.REGRESSED, wrong)
    if measurement.outcome == "unsupported":
        return _verdict(measurement, None, Status.UNSUPPORTED, _ended(measurement))
    if unheld:
        return _verdict(measurement, None, Status.NOT_COMPARED, OtherKernels(kernels=unheld))
    if measurement.machine.emulated and measurement.outcome == "fits":
        return _verdict(measurement, None, Status.NOT_COMPARED, NoRealGpu())
    return _verdict(measurement, None, Status.MISSING, _ended(measurement, NoBaseline))


def _obstacle(new: Measurement, baseline: Baseline) -> Reason | None:
    """Why the two cannot be compared; None if they can."""
    old = baseline.measurement
    if not new.cell == baseline.cell == old.cell:
        return OtherCell(cell=baseline.cell)
    if old.outcome not in OUTCOMES:
        return UnknownOutcome(outcome=old.outcome)
    if new.world_size != old.world_size:
        return OtherRanks(here=new.world_size, recorded=old.world_size)
    if not new.outcome == old.outcome == "fits" or STEP_TIME not in new.readings:
        return None
    time = new.readings[STEP_TIME]
    if not all(is_number(number) for number in (time.value, *time.samples) if number is not None):
        return None  # its rule says that
    if 0 < new.steps < old.steps:
        return FewerSteps(here=new.steps, recorded=old.steps)
    if new.warmup is not None and old.warmup is not None and new.warmup < old.warmup:
        return LessWarmup(here=new.warmup, recorded=old.warmup)
    return None


def _judge_outcome(new: Measurement, baseline: Baseline) -> Verdict:
    """One of the two does not fit: only the outcomes decide."""
    old = baseline.measurement
    difference = OUTCOMES.index(new.outcome) - OUTCOMES.index(old.outcome)
    ended = _ended(new, recorded=old.outcome)
    if difference == 0:
        status = Status.UNSUPPORTED if new.outcome == "unsupported" else Status.OK
        return _verdict(new, baseline, status, ended)
    status = Status.IMPROVED if difference > 0 else Status.REGRESSED
    moves, why = what_grew(new, old) if new.outcome == "oom" else ([], None)
    line = Line(
        metric=OUTCOME,
        title=OUTCOME,
        unit=BYTES,
        status=status,
        old=old.outcome,
        new=new.outcome,
        moves=moves,
        reason=why,
    )
    return _verdict(new, baseline, status, ended, [line])


def _verdict(
    measurement: Measurement,
    baseline: Baseline | None,
    status: Status,
    why: Reason | None,
    lines: Iterable[Line] = (),
) -> Verdict:
    accept = (CONSENTS if baseline else FIRST_CONSENTS).get(status)
    if measurement.capacity_bytes is not None or measurement.machine.emulated:
        accept = None  # a baseline is for the hardware, not for a cap on it or an emulation of it
    return Verdict(
        cell=measurement.cell,
        status=status,
        reason=why,
        lines=list(lines),
        changed=what_changed(measurement, baseline.measurement) if baseline and status not in EQUAL else [],
        accept=accept,
        headroom=headroom(measurement),
        emulated=measurement.machine.emulated,
    )


def what_changed(new: Measurement, old: Measurement) -> list[Change]:
    """Possible causes: versions, flags, the driver, the device. A cell without a measurement has no versions and no
    flags; an old baseline has no flags.
    """
    changed = _joined(changed_versions(old.versions, new.versions) if new.versions else [], changed_since(old, new))
    changed += [own] if (own := own_code_since(old, new)) else []
    before, after = ({"driver": side.machine.driver or NONE, "device": side.machine.device} for side in (old, new))
    return changed + changes(before, after, ChangeKind.MACHINE)
