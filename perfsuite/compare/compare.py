"""Two sides of an A/B, launched in turn on one machine: in what B is worse or better than A, and why.

Exact metrics and losses use the judge's own rules, with A as the baseline; times use compare/paired.py.

Statuses, worst first
        failed      a side ended without a measurement, the metrics of both sides differ, or nothing could be compared
        regressed   B needs more, is certainly slower, or computes something else
        undecided   a time: a difference as large as the tolerance can be neither shown nor ruled out
        improved    B needs less or is certainly faster
        immaterial  an exact metric differs by less than matters
        same        a time: any difference is smaller than the tolerance
A line can also be "not held", or "differs": two strategies may count and compute differently
without one being worse.
"""

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from perfsuite.catalog.definitions import Metric
from perfsuite.compare.explain import explain_time
from perfsuite.compare.judge import OUTCOMES
from perfsuite.compare.merge_launches import merge
from perfsuite.compare.noise import level_of
from perfsuite.compare.paired import LOOKS, harmless, interval
from perfsuite.compare.paired import Interval as PairedInterval
from perfsuite.compare.pooling import Effect
from perfsuite.compare.rules import compare_metric
from perfsuite.compare.scope import Scope, changes, line_of
from perfsuite.compare.terms import Terms
from perfsuite.records.change import ChangeKind
from perfsuite.records.measurement import Measurement
from perfsuite.records.record import Record
from perfsuite.records.sample import Reading
from perfsuite.records.verdict import Because, Bound, Interval, Limit, Line, Reason, Status, Verdict, reason

ORDER = (
    Status.FAILED,
    Status.REGRESSED,
    Status.UNDECIDED,
    Status.IMPROVED,
    Status.IMMATERIAL,
    Status.SAME,
)  # worst first
_MOVED = (Status.REGRESSED, Status.IMPROVED, Status.IMMATERIAL)
_STATUS = {Status.OK: Status.SAME, Status.MISSING: Status.FAILED}  # the judge's that have another name here


class Paired(Record, frozen=True, kw_only=True):
    """A time of B relative to A's, with the interval that decided. ``error`` is the chance that it lies outside on one
    side. ``differences`` are those of pairs, in logarithms.
    """

    metric: str
    ratio: float
    low: float
    high: float
    error: float
    differences: list[float]


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
    one_sided: bool = False,
    pooled: Mapping[str, Effect] | None = None,
) -> Comparison:
    """Compare all launches of both sides, in their order. One launch of each compares no times.

    ``terms`` say which difference in a time must be detected, and how often an equal time may be called worse.
    ``installed`` are versions of packages of A and of B that the ranks may not report. ``one_sided``: only whether B is
    slower is asked, so a time that rules that out is the same, however much faster it may be. ``pooled`` are the
    effects of a grid trial that have this cell, by metric: they decide its times.
    """
    metrics = list(metrics)
    old, new = merge(a, metrics), merge(b, metrics)
    cell = new.cell if old.cell == new.cell else f"{old.cell} -> {new.cell}"
    reported = (old.versions, new.versions) if old.versions and new.versions else ({}, {})
    ours, theirs = (known | more for known, more in zip(reported, installed, strict=True))
    changed = changes(ours, theirs)
    if old.flags and new.flags:
        changed += changes(old.flags, new.flags, ChangeKind.VARIABLE)
    if old.outcome != "fits" or new.outcome != "fits":
        status, why = _outcomes(old, new)
        verdict = Verdict(cell=cell, status=status, reason=why, changed=changed)
        return Comparison(a=old, b=new, verdict=verdict, times=[], explanations=[])
    # The losses use the wider precision bound of the two: the rules look for it among all the techniques.
    scope = Scope(new, old, "+".join(strategies))
    lines, times, explanations = [], [], []
    for metric in metrics:
        before, after = old.readings.get(metric.name), new.readings.get(metric.name)
        if before is None and after is None and metric.optional:
            continue
        if metric.is_time and before and after:
            if pooled is None:
                line, paired = _time(metric, old, new, terms, one_sided)
            else:
                line, paired = _time_of_grid(metric, old, new, pooled.get(metric.name))
            times += [paired] if paired else []
        else:
            judged = compare_metric(metric, scope)
            if judged is None:
                continue
            line = _ours(judged, metric, rivals=strategies[0] != strategies[1])
        lines.append(line)
        if line.status in _MOVED and before and after and after.parts:
            pieces = list(_pieces(before, after))
            explanations.append(Explanation(metric=metric.name, title=metric.title, unit=metric.unit, pieces=pieces))
    status = min((line.status for line in lines if line.status in ORDER), key=ORDER.index, default=Status.FAILED)
    verdict = Verdict(cell=cell, status=status, lines=lines, changed=changed)
    return Comparison(a=old, b=new, verdict=verdict, times=times, explanations=explanations)


def differences(a: Sequence[Measurement], b: Sequence[Measurement], metric: str) -> list[float]:
    """Of each launch of B from its paired launch of A, in logarithms: the median over their steps, which may have
    alternated; the difference of the medians if one side lacks some steps.
    """
    return [_difference(before, after) for before, after in _paired(a, b, metric)]


def _paired(
    a: Sequence[Measurement], b: Sequence[Measurement], metric: str
) -> Iterator[tuple[Sequence[float], Sequence[float]]]:
    """The steps of each launch of A and of its paired launch of B."""
    launches = [[launch for one in side for launch in one.by_launch(metric)] for side in (a, b)]
    return zip(*launches, strict=True)


def _difference(before: Sequence[float], after: Sequence[float]) -> float:
    if len(before) != len(after):
        return level_of(after) - level_of(before)
    return statistics.median(math.log(new / old) for old, new in zip(before, after, strict=True))


def errors(a: Sequence[Measurement], b: Sequence[Measurement], metric: str) -> list[float]:
    """The standard error of each of those differences: that of a median, from the spread of the steps (Kendall and
    Stuart 1977, "The advanced theory of statistics", 10.10). Steps are taken as independent, which they are not quite.
    """
    return [_error(before, after) for before, after in _paired(a, b, metric)]


def _error(before: Sequence[float], after: Sequence[float]) -> float:
    if len(before) == len(after):
        sides = [[math.log(new / old) for old, new in zip(before, after, strict=True)]]
    else:
        sides = [[math.log(step) for step in side] for side in (before, after)]
    return math.sqrt(math.pi / 2 * sum(_robust_spread(side) ** 2 / len(side) for side in sides))


def _robust_spread(numbers: Sequence[float]) -> float:
    """From the median absolute deviation, which is 1 / 1.4826 of the standard deviation of normal noise."""
    center = statistics.median(numbers)
    return 1.4826 * statistics.median(abs(one - center) for one in numbers)


def _outcomes(old: Measurement, new: Measurement) -> tuple[Status, Reason]:
    """If a side did not fit, only the outcomes are compared."""
    messages = [one.failure.message if one.failure else "" for one in (old, new)]
    for side, one, message in zip("AB", (old, new), messages, strict=True):
        if one.outcome not in OUTCOMES:
            return Status.FAILED, reason(Because.SIDE_FAILED, side=side, message=message)
    message = messages[1] or messages[0]
    if old.outcome == new.outcome == "unsupported":
        return Status.FAILED, reason(Because.NEITHER_SIDE, message=message)
    by = OUTCOMES.index(new.outcome) - OUTCOMES.index(old.outcome)
    status = Status.SAME if by == 0 else Status.IMPROVED if by > 0 else Status.REGRESSED
    return status, reason(Because.SIDES, recorded=old.outcome, outcome=new.outcome, message=message)


def _ours(line: Line, metric: Metric, rivals: bool) -> Line:
    status = _STATUS.get(line.status, line.status)
    if rivals and (line.status == Status.MISSING or (line.status == Status.REGRESSED and metric.worse == "different")):
        status = Status.DIFFERS
    return msgspec.structs.replace(line, status=status, detects=None)


def _time(
    metric: Metric, old: Measurement, new: Measurement, terms: Terms, one_sided: bool
) -> tuple[Line, Paired | None]:
    """The ratio's line. For a rate, more is better, so its reciprocal is compared and the rate is shown."""
    sign, tolerance = metric.sign, terms.tolerance_of(metric)
    by_pair = differences([old], [new], metric.name)
    before, after = (side.readings[metric.name] for side in (old, new))
    here = interval([sign * difference for difference in by_pair], terms.red_rate)
    if here is None:
        few = reason(Because.FEW_PAIRS, pairs=len(by_pair), least=LOOKS[0])
        return line_of(metric, Status.NOT_HELD, before, after, reason=few), None
    status, decided = here.decide(tolerance)
    why, limit = None, Limit(bound=Bound.PAIRS, value=tolerance)
    if one_sided and status == Status.UNDECIDED and here.not_slower(tolerance):
        status, decided, limit = Status.SAME, here.narrow, Limit(bound=Bound.BEYOND, value=sign * tolerance)
    low, high = sorted(math.exp(sign * end) for end in (decided.low, decided.high))
    ratio = math.exp(sign * here.estimate)
    if status == Status.UNDECIDED:
        why = _undecided(here, tolerance)
    elif status in _MOVED and min(abs(decided.low), abs(decided.high)) < math.log1p(tolerance):
        why = reason(Because.BEYOND_HARMLESS, change=harmless(tolerance))  # it is "allowed" too
    line = line_of(
        metric,
        status,
        before,
        after,
        compared=True,
        ratio=ratio,
        interval=Interval(low=low, high=high, pairs=len(by_pair)),
        limit=limit,
        reason=why,
        phases=explain_time(new, old) if status == Status.REGRESSED else [],
    )
    paired = Paired(metric=metric.name, ratio=ratio, low=low, high=high, error=decided.error, differences=by_pair)
    return line, paired


def _time_of_grid(
    metric: Metric, old: Measurement, new: Measurement, effect: Effect | None
) -> tuple[Line, Paired | None]:
    """The line of a time that is judged with all cells that the same groups explain."""
    by_pair = differences([old], [new], metric.name)
    before, after = (side.readings[metric.name] for side in (old, new))
    if effect is None:
        few = reason(Because.FEW_PAIRS, pairs=len(by_pair), least=1)
        return line_of(metric, Status.NOT_HELD, before, after, reason=few), None
    decided, sign = effect.interval, metric.sign
    low, high = sorted(math.exp(sign * end) for end in (decided.low, decided.high))
    ratio = math.exp(sign * decided.estimate)
    why = reason(
        Because.WITH_GROUP,
        kind=effect.kind,
        name=effect.name,
        cells=len(effect.cells),
        own=math.expm1(statistics.fmean(by_pair)),
        pairs=len(by_pair),
    )
    line = line_of(
        metric,
        effect.status,
        before,
        after,
        compared=True,
        ratio=ratio,
        interval=Interval(low=low, high=high, pairs=effect.pairs),
        limit=Limit(bound=Bound.PAIRS, value=effect.tolerance),
        reason=_alone(effect) if len(effect.cells) == 1 else why,
        phases=explain_time(new, old) if effect.status == Status.REGRESSED else [],
    )
    paired = Paired(metric=metric.name, ratio=ratio, low=low, high=high, error=decided.error, differences=by_pair)
    return line, paired


def _alone(effect: Effect) -> Reason | None:
    """What the pairs of one cell alone show, if they do not decide."""
    return _undecided(effect.interval, effect.tolerance) if effect.status == Status.UNDECIDED else None


def _undecided(here: PairedInterval, tolerance: float) -> Reason:
    """What the pairs do show."""
    if here.low <= 0 <= here.high:
        return reason(Because.NOTHING_SHOWN, change=tolerance)
    return reason(Because.PERHAPS_TOO_LITTLE, worse=here.low > 0)


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
