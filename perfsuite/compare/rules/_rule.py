"""What a rule is."""

from collections.abc import Callable
from dataclasses import dataclass

from perfsuite.catalog.definitions import Metric
from perfsuite.compare.scope import Scope
from perfsuite.records.reasons import Reason
from perfsuite.records.sample import Reading
from perfsuite.records.verdict import Line

Summary = Callable[[list[float]], float]


def _agree(metric: Metric, first: Reading, other: Reading, strategy: str) -> bool:
    return False


def _not_wrong(metric: Metric, reading: Reading, strategy: str) -> Reason | None:
    return None


@dataclass(frozen=True, kw_only=True)
class Rule:
    """How a metric is compared with its baseline. Everything that it returns is data; show/ has the words.

    ``hold`` takes the metric, its new and its old reading, both finite, and returns a line of the verdict; None if
    there is nothing to say. Every comparison asks whether a number is good, never whether it is bad, so that NaN is
    red. ``summary`` makes the metric's value of its samples; without it the value is that of the ranks. ``differs``
    says whether two launches of one cell contradict each other. ``wrong`` says why a reading is wrong where no baseline
    has the metric, so that none is recorded of it; it takes the metric, the reading and the strategy, and returns None
    if it is not. ``has_limit`` says that the metric can be red by its value. If samples are ``is_open_ended``,
    ranks and launches may have different numbers of them.
    """

    hold: Callable[[Metric, Reading, Reading, Scope], Line | None]
    summary: Summary | None = None
    differs: Callable[[Metric, Reading, Reading, str], bool] = _agree
    wrong: Callable[[Metric, Reading, str], Reason | None] = _not_wrong
    has_limit: bool = True
    is_open_ended: bool = False
