"""How far judged rows are off: statistics of a table, its rows one by one if they are few, else by device and GPUs."""

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from time_validate import Judged

from perfsuite.features.predict.time import fitted

LISTED = 12  # rows of a table that are listed one by one


def relative(judged: Judged) -> float:
    """Predicted by measured seconds, less 1."""
    return math.expm1(judged.error)


def covered(judged: Judged) -> bool:
    """Whether the measured time is in the prediction's interval."""
    low, high = fitted.ERRORS[judged.regime]
    return low <= math.exp(-judged.error) <= high


def statistic(found: Sequence[Judged], name: str) -> float:
    """Mean, median or worst absolute error, or the bias: the median with its sign."""
    if name == "bias":
        return statistics.median(map(relative, found))
    of: dict[str, Callable[[list[float]], float]] = {"mean": statistics.mean, "median": statistics.median, "worst": max}
    return of[name]([abs(relative(one)) for one in found])


def percent(value: float, sign: str = "") -> str:
    """``0.0342`` → ``3.4 %``; with the sign ``+``, ``+3.4 %``."""
    return f"{value * 100:{sign}.1f} %"


SCORES = ("rows", "mean", "median", "worst", "bias", "in the interval")
ROWS = ("row", "measured", "predicted", "error", "interval", "regime")
BY_SCALE = ("table", "device", "GPUs", *SCORES)


def scores(found: Sequence[Judged]) -> tuple[str, ...]:
    """The columns SCORES: the interval's is the share of rows in it."""
    numbers = [percent(statistic(found, what)) for what in ("mean", "median", "worst")]
    share = f"{statistics.mean(map(covered, found)) * 100:.0f} %"
    return str(len(found)), *numbers, percent(statistic(found, "bias"), "+"), share


def small_tables(by_table: Mapping[str, Sequence[Judged]]) -> Iterator[tuple[str, ...]]:
    """The rows of small tables."""
    yield from (one_row(one) for found in by_table.values() if len(found) <= LISTED for one in found)


def large_tables(by_table: Mapping[str, Sequence[Judged]]) -> Iterator[tuple[str, ...]]:
    """Large tables by device and GPUs."""
    for name, found in by_table.items():
        if len(found) > LISTED:
            yield from by_scale(name, found)


def one_row(one: Judged) -> tuple[str, ...]:
    """One judged row."""
    predicted = one.row.seconds * math.exp(one.error)
    low, high = (predicted * share for share in fitted.ERRORS[one.regime])
    times = f"{one.row.seconds:.3f} s", f"{predicted:.3f} s", percent(relative(one), "+"), f"{low:.3f}–{high:.3f} s"
    return one.row.label, *times, one.regime


def by_scale(name: str, found: Iterable[Judged]) -> Iterator[tuple[str, ...]]:
    """One line for each device and number of GPUs."""
    groups = defaultdict(list)
    for one in found:
        groups[one.row.device, one.row.setup.ranks].append(one)
    for (device, ranks), group in sorted(groups.items()):
        yield name, device, str(ranks), *scores(group)
