"""The times of two sides that were launched in pairs: from steps to differences, and from these to a line.

The pairs of all cells decide together, by compare/pooling.py.
"""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from perfsuite.catalog.definitions import Metric
from perfsuite.compare.explain import explain_time
from perfsuite.compare.grid_groups import Effect
from perfsuite.compare.noise import MAD, level_of
from perfsuite.compare.paired import Interval as PairedInterval
from perfsuite.compare.paired import harmless, interval
from perfsuite.compare.pooling import LOOKS
from perfsuite.compare.scope import line_of
from perfsuite.compare.terms import Terms
from perfsuite.records.measurement import Measurement
from perfsuite.records.reasons import BeyondHarmless, NoInterval, NothingShown, Reason, SomeSteps, Undecided, WithGroup
from perfsuite.records.record import Record
from perfsuite.records.verdict import Bound, Limit, Line, LineInterval, Status

SOME_STEPS = 0.1  # the least slow-down of a mean step that is reported if the median step has none


@dataclass(frozen=True)
class PairedAnswer:
    """What pairs say of a time: ``status``, and ``decided``, the interval on which it rests. More is worse in it.
    ``estimate`` is that of the logarithm, ``pairs`` are those that were asked.
    """

    status: Status
    decided: PairedInterval
    estimate: float
    limit: Limit
    pairs: int
    why: Reason | None = None

    def ratio(self, sign: int) -> float:
        """B's time of A's; of a rate, whose ``sign`` is -1, B's rate of A's."""
        return math.exp(sign * self.estimate)

    def ends(self, sign: int) -> tuple[float, float]:
        """Of the interval, as ratios."""
        low, high = sorted(math.exp(sign * end) for end in (self.decided.low, self.decided.high))
        return low, high


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

    @classmethod
    def of(cls, metric: Metric, answer: PairedAnswer, differences: list[float]) -> "Paired":
        low, high = answer.ends(metric.sign)
        ratio, error = answer.ratio(metric.sign), answer.decided.error
        return cls(metric=metric.name, ratio=ratio, low=low, high=high, error=error, differences=differences)


def differences(a: Sequence[Measurement], b: Sequence[Measurement], metric: str) -> list[float]:
    """Of each launch of B from its paired launch of A, in logarithms: the median over their steps, which may have
    alternated; the difference of the medians if one side lacks some steps.
    """
    return [_difference(before, after) for before, after in _paired(a, b, metric)]


def differences_of_means(a: Sequence[Measurement], b: Sequence[Measurement], metric: str) -> list[float]:
    """The same of the means, in which each step counts."""
    pairs = _paired(a, b, metric)
    return [math.log(statistics.fmean(after) / statistics.fmean(before)) for before, after in pairs]


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
    """From the median absolute deviation."""
    center = statistics.median(numbers)
    return MAD * statistics.median(abs(number - center) for number in numbers)


def with_some_steps(answer: PairedAnswer, by_mean: Sequence[float], metric: Metric, terms: Terms) -> PairedAnswer:
    """The answer that the means give, if they are surely slower than the medians can tell: less than half of the steps
    may be slow, such as every tenth. A busy machine moves a mean further than a median, so no mean makes a time open.
    """
    tolerance = terms.tolerance_of(metric)
    here = interval([metric.sign * difference for difference in by_mean], terms.red_rate / len(LOOKS))
    if answer.status == Status.REGRESSED or here is None or here.low <= math.log1p(max(SOME_STEPS, tolerance)):
        return answer
    why = SomeSteps(median=answer.ratio(metric.sign) - 1)
    limit = Limit(bound=Bound.PAIRS, value=tolerance)
    return PairedAnswer(Status.REGRESSED, here, here.estimate, limit, len(by_mean), why)


def answer_of(by_pair: Sequence[float], effect: Effect | None, sign: int) -> PairedAnswer | Reason:
    """What the pairs of all cells that the same groups explain say of this one. ``sign`` is the metric's."""
    if effect is None:
        return NoInterval()
    why: Reason | None = WithGroup(
        kind=effect.kind,
        name=effect.name,
        cells=len(effect.cells),
        own=math.expm1(statistics.fmean(by_pair)),
        pairs=len(by_pair),
    )
    if len(effect.cells) == 1:
        why = _why(effect)
    return PairedAnswer(
        effect.status, effect.interval, effect.interval.estimate, _limit(effect, sign), effect.pairs, why
    )


def _limit(effect: Effect, sign: int) -> Limit:
    """The question is whether B is slower: a time that may be faster by more than the tolerance is ok all the same."""
    if effect.status == Status.OK and effect.interval.low <= -math.log1p(effect.tolerance):
        return Limit(bound=Bound.BEYOND, value=sign * effect.tolerance)
    return Limit(bound=Bound.PAIRS, value=effect.tolerance)


def time_line(metric: Metric, old: Measurement, new: Measurement, answer: PairedAnswer | Reason) -> Line:
    """The ratio's line."""
    before, after = (side.readings[metric.name] for side in (old, new))
    if isinstance(answer, Reason):
        return line_of(metric, Status.NOT_COMPARED, before, after, reason=answer)
    low, high = answer.ends(metric.sign)
    return line_of(
        metric,
        answer.status,
        before,
        after,
        compared=True,
        ratio=answer.ratio(metric.sign),
        interval=LineInterval(low=low, high=high, pairs=answer.pairs),
        limit=answer.limit,
        reason=answer.why,
        phases=explain_time(new, old) if answer.status == Status.REGRESSED else [],
    )


def _why(effect: Effect) -> Reason | None:
    """What is to be said of a cell that is judged alone."""
    here, tolerance = effect.interval, effect.tolerance
    if effect.status == Status.OPEN:
        return _undecided(effect)
    if effect.status != Status.OK and min(abs(here.low), abs(here.high)) < math.log1p(tolerance):
        return BeyondHarmless(change=harmless(tolerance))  # it is "allowed" too
    return None


def _undecided(effect: Effect) -> Reason:
    """What the pairs do show."""
    here, tolerance = effect.interval, effect.tolerance
    if here.low <= 0 <= here.high:
        return NothingShown(change=tolerance)
    far = here.decide(tolerance)[0] in (Status.REGRESSED, Status.IMPROVED)
    return Undecided(worse=here.low > 0, few_pairs=far)
