"""Two sides of an A/B, launched in turn on one machine: in what B is worse or better than A, and why.

Exact metrics and losses use the judge's own rules, with A as the baseline; times use compare/paired_times.py.

Statuses, worst first
        failed      a side ended without a measurement, the metrics of both sides differ, or nothing could be compared
        regressed   B needs more, is certainly slower, or computes something else
        open        a time: a difference as large as the tolerance can be neither shown nor ruled out
        improved    B needs less or is certainly faster
        immaterial  an exact metric differs by less than matters
        ok          as good as A; of a time, any difference is smaller than the tolerance
A line can also be "not compared": two strategies may count and compute differently without one being worse.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from perfsuite.catalog.definitions import Metric
from perfsuite.compare.grid_groups import Effect
from perfsuite.compare.installations import changed_versions
from perfsuite.compare.judge import OUTCOMES
from perfsuite.compare.less_work import without_less_work
from perfsuite.compare.merge_launches import merge
from perfsuite.compare.origins import with_origins
from perfsuite.compare.paired_times import (
    Paired,
    PairedAnswer,
    answer_of,
    differences,
    differences_of_means,
    time_line,
    with_some_steps,
)
from perfsuite.compare.rules import compare_metric
from perfsuite.compare.scope import Scope
from perfsuite.compare.settings import changed_settings
from perfsuite.compare.terms import Terms
from perfsuite.records.measurement import Measurement
from perfsuite.records.reasons import OtherStrategy, Reason, SideFailed, SidesEnded
from perfsuite.records.record import Record
from perfsuite.records.sample import Reading
from perfsuite.records.verdict import Line, Status, Verdict

ORDER = (
    Status.FAILED,
    Status.REGRESSED,
    Status.OPEN,
    Status.IMPROVED,
    Status.IMMATERIAL,
    Status.OK,
)  # worst first
_MOVED = (Status.REGRESSED, Status.IMPROVED, Status.IMMATERIAL)
_STATUS = {Status.MISSING: Status.FAILED}  # the judge's that have another name here


class Piece(Record, frozen=True, kw_only=True):
    """A part of a metric, or an operator in it, on both sides; None if a side does not name it. ``by`` is how much it
    moved ``at_least``, since a side names its largest operators only.
    """

    part: str
    operator: str = ""
    old: int | None
    new: int | None
    by: int

    @property
    def at_least(self) -> bool:
        """Whether it may have moved more."""
        return self.by not in (0, (self.new or 0) - (self.old or 0))


class Explanation(Record, frozen=True, kw_only=True):
    """What moved in a metric, the largest first: each part, and after it its operators."""

    metric: str
    title: str
    unit: str
    pieces: list[Piece]


class Comparison(Record, frozen=True, kw_only=True):
    """One cell of an A/B; ``a`` and ``b`` keep every raw sample."""

    a: Measurement
    b: Measurement
    verdict: Verdict
    times: list[Paired]
    explanations: list[Explanation]


def compare(
    a: Sequence[Measurement],
    b: Sequence[Measurement],
    metrics: Iterable[Metric],
    *,
    strategies: tuple[str, str],
    terms: Terms,
    installed: tuple[dict[str, str], dict[str, str]] = ({}, {}),
    pooled: Mapping[str, Effect] | None = None,
) -> Comparison:
    """Compare all launches of both sides, in their order.

    ``pooled`` are the effects that have this cell, by metric: they decide its times, and without one a time is not
    compared. ``terms`` say how often an equal time may be called worse. ``installed`` are versions of packages of A and
    of B that the ranks may not report.
    """
    metrics = list(metrics)
    old, new = merge(a, metrics), merge(b, metrics)
    cell = new.cell if old.cell == new.cell else f"{old.cell} -> {new.cell}"
    reported = (old.versions, new.versions) if old.versions and new.versions else ({}, {})
    ours, theirs = (known | more for known, more in zip(reported, installed, strict=True))
    changed = [*changed_versions(ours, theirs), *changed_settings(old, new)]
    if old.outcome != "fits" or new.outcome != "fits":
        status, why = _outcomes(old, new)
        verdict = Verdict(cell=cell, status=status, reason=why, changed=changed)
        return Comparison(a=old, b=new, verdict=verdict, times=[], explanations=[])
    # The losses use the wider precision bound of the two: the rules look for it among all the techniques.
    scope = Scope(new, old, "+".join(strategies))
    lines, times, explanations = [], [], []
    for metric in metrics:
        before, after = old.readings.get(metric.name), new.readings.get(metric.name)
        if before is None and after is None and (metric.optional or new.times_only):
            continue
        if metric.is_time and before and after:
            by_pair = differences([old], [new], metric.name)
            answer = answer_of(by_pair, (pooled or {}).get(metric.name), metric.sign)
            if isinstance(answer, PairedAnswer):
                answer = with_some_steps(answer, differences_of_means([old], [new], metric.name), metric, terms)
            line = time_line(metric, old, new, answer)
            if isinstance(answer, PairedAnswer):
                times.append(Paired.of(metric, answer, by_pair))
        else:
            judged = compare_metric(metric, scope)
            if judged is None:
                continue
            line = _ours(judged, metric, rivals=strategies[0] != strategies[1])
        lines.append(line)
        if line.status in _MOVED and before and after and after.parts:
            pieces = list(_pieces(before, after))
            explanations.append(Explanation(metric=metric.name, title=metric.title, unit=metric.unit, pieces=pieces))
    lines = with_origins(without_less_work(lines, metrics, old, new), old, new)
    verdict = Verdict(cell=cell, status=_worst(lines), lines=lines, changed=changed)
    return Comparison(a=old, b=new, verdict=verdict, times=times, explanations=explanations)


def with_times(exact: Comparison, timed: Comparison) -> Comparison:
    """The comparison of exact metrics by one launch of each side, with the times of pairs of launches."""
    if not (exact.verdict.lines and timed.verdict.lines):
        return timed if exact.verdict.lines else exact
    by_pairs = {line.metric: line for line in timed.verdict.lines}
    lines = [by_pairs.get(line.metric, line) for line in exact.verdict.lines]
    a, b = (_with_readings(once, often) for once, often in ((exact.a, timed.a), (exact.b, timed.b)))
    verdict = msgspec.structs.replace(exact.verdict, lines=lines, status=_worst(lines))
    return Comparison(a=a, b=b, verdict=verdict, times=timed.times, explanations=exact.explanations)


def _with_readings(once: Measurement, often: Measurement) -> Measurement:
    """The launch that counted, with the times of the launches that measured times alone."""
    return msgspec.structs.replace(often, readings={**once.readings, **often.readings}, times_only=False)


def _worst(lines: Iterable[Line]) -> Status:
    return min((line.status for line in lines if line.status in ORDER), key=ORDER.index, default=Status.FAILED)


def _outcomes(old: Measurement, new: Measurement) -> tuple[Status, Reason]:
    """If a side did not fit, only the outcomes are compared."""
    messages = [one.failure.message if one.failure else "" for one in (old, new)]
    if old.outcome not in OUTCOMES:
        return Status.FAILED, SideFailed(side="A", message=messages[0])
    if new.outcome not in OUTCOMES:
        return Status.FAILED, SideFailed(side="B", message=messages[1])
    why = SidesEnded(a=old.outcome, b=new.outcome, message=messages[1] or messages[0])
    if old.outcome == new.outcome == "unsupported":
        return Status.FAILED, why
    by = OUTCOMES.index(new.outcome) - OUTCOMES.index(old.outcome)
    status = Status.OK if by == 0 else Status.IMPROVED if by > 0 else Status.REGRESSED
    return status, why


def _ours(line: Line, metric: Metric, rivals: bool) -> Line:
    if rivals and (line.status == Status.MISSING or (line.status == Status.REGRESSED and metric.worse == "different")):
        return msgspec.structs.replace(line, status=Status.NOT_COMPARED, reason=OtherStrategy(), detects=None)
    return msgspec.structs.replace(line, status=_STATUS.get(line.status, line.status), detects=None)


def _pieces(old: Reading, new: Reading) -> Iterator[Piece]:
    """The parts that differ, and after each part the operators that differ, the largest difference first.

    A reading names only its largest operators. An operator that a side does not name is at most as large as the
    smallest named one, and as the rest of the part. So a difference is reported only as far as it is certain.
    """
    parts = {part: new.parts.get(part, 0) - old.parts.get(part, 0) for part in sorted(old.parts | new.parts)}
    for part, by in sorted(parts.items(), key=lambda item: -abs(item[1])):
        most_old, most_new = _most_unnamed(old, part), _most_unnamed(new, part)
        moved: dict[str, int] = {}
        for name in (name for name in old.suspects | new.suspects if name.startswith(f"{part}: ")):
            before, after = old.suspects.get(name), new.suspects.get(name)
            if before is None:
                moved[name] = max(0, (after or 0) - most_old)
            else:
                moved[name] = min(0, most_new - before) if after is None else after - before
        moved = {name: size for name, size in moved.items() if size}
        if moved or by:
            yield Piece(part=part, old=old.parts.get(part, 0), new=new.parts.get(part, 0), by=by)
        for name in sorted(moved, key=lambda name: -abs(moved[name])):
            sides = {"old": old.suspects.get(name), "new": new.suspects.get(name)}
            yield Piece(part=part, operator=name.removeprefix(f"{part}: "), by=moved[name], **sides)


def _most_unnamed(reading: Reading, part: str) -> int:
    """The largest size in the part of an operator that the reading does not name."""
    named = [size for name, size in reading.suspects.items() if name.startswith(f"{part}: ")]
    return max(0, min(reading.parts.get(part, 0) - sum(named), *reading.suspects.values(), 2**63))
