"""Axes: the unit of a quantity, and round numbers for its ticks."""

import math
from dataclasses import dataclass

from perfsuite.catalog.definitions import Metric
from perfsuite.system import units

_UNITS: dict[str, tuple[tuple[str, float], ...]] = {  # largest first
    units.BYTES: (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("B", 1)),
    units.SECONDS: (("s", 10.0), ("ms", 1e-3), ("µs", 1e-6)),
    units.RATIO: (("%", 0.01),),
    units.FLOPS: (("TFLOP/s", 1e12), ("GFLOP/s", 1e9), ("MFLOP/s", 1e6)),
}
_SIZE = {"s": 1.0}  # units that begin above their own size


@dataclass(frozen=True)
class Quantity:
    """What an axis shows: ``title``, and numbers in the ``unit`` of a metric."""

    title: str
    of_unit: str = units.COUNT

    def show(self, number: float) -> str:
        """The text of one value."""
        return units.show(number, self.of_unit)

    @classmethod
    def of(cls, metric: Metric) -> "Quantity":
        """The quantity that a metric measures."""
        return cls(metric.title, metric.unit)

    def unit(self, most: float) -> tuple[str, float]:
        """The largest unit of which ``most`` is at least one, and its size; no unit for counts."""
        units = _UNITS.get(self.of_unit, (("", 1.0),))
        name, size = next(((name, size) for name, size in units if abs(most) >= size), units[-1])
        return name, _SIZE.get(name, size)

    def axis(self, most: float) -> str:
        """``step time, ms``."""
        unit, _ = self.unit(most)
        return f"{self.title}, {unit}" if unit else self.title


BYTES, SECONDS = Quantity("memory", units.BYTES), Quantity("time", units.SECONDS)


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Round numbers from ``low`` to ``high``, at most ``most`` of them and at least one."""
    if not 1e-200 < high - low < math.inf:  # a range that numbers can divide
        return [low]
    rough = (high - low) / max(1, most - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * nice for nice in (1, 2, 2.5, 5, 10) if power * nice >= rough * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    return [step * number for number in range(first, math.floor(high / step + 1e-9) + 1)] or [low]


def tick_text(value: float) -> str:
    """``1,200``, ``2.5``: a round number without trailing zeros."""
    return f"{value:,.6g}" if abs(value) < 1e6 else f"{value:,.0f}"
