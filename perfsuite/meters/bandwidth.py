"""Bandwidth: the cost of a message of each size, and the latency and the cost per byte that explain it.

Algorithm bandwidth is a message's bytes per second, bus bandwidth that times 2(n-1)/n for an all-reduce, (n-1)/n for
all-gather and reduce-scatter, 1 for point to point: the load of each link, for any collective and number of ranks
 (https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md).

The model is t = α + β·bytes, fitted to the medians by least squares with weights 1/t², so that a small message counts
as much as a large one; the residual is the root mean square of the relative errors that are left.
"""

import functools
import math
import statistics
from collections.abc import Mapping
from typing import Any

from perfsuite.catalog.definitions import Metric
from perfsuite.errors import Unsupported
from perfsuite.rank.message_sizes import SIZES, label
from perfsuite.rank.meter import Meter
from perfsuite.rank.session import Session
from perfsuite.rank.trainer import StepOutcome
from perfsuite.records.sample import Reading
from perfsuite.records.step_kinds import StepKind
from perfsuite.system.units import NUMBER, PER_BYTE, RATE, RATIO, SECONDS

PROCESSES = ("communication",)


class Bandwidth(Meter):
    """Reads the trainer's own clock after every timed sweep."""

    processes = PROCESSES

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        if session.job.capacity_bytes is not None:
            raise Unsupported(f"{session.job.cell} sends messages: it has no tensors, so a capacity has no effect.")
        self.seconds: dict[int, list[float | None]] = {size: [] for size in SIZES}

    def stepped(self, kind: StepKind, outcome: StepOutcome) -> None:
        if kind == StepKind.TIMED:
            trainer: Any = self.trainer
            for size, seconds in trainer.seconds.items():
                self.seconds[size].append(seconds)

    def readings(self) -> dict[str, Reading]:
        trainer: Any = self.trainer
        readings = {
            _time(size): Reading(
                value=statistics.median(sample for sample in samples if sample is not None), samples=samples
            )
            for size, samples in self.seconds.items()
        }
        return readings | {"bus_factor": Reading(value=trainer.bus_factor)}


def _time(size: int) -> str:
    """The metric of a message's time."""
    return f"message_{label(size).lower()}_seconds"


def bandwidth(readings: Mapping[str, Reading], world_size: int, *, size: int, bus: bool) -> float:
    """Bytes per second of the median message."""
    return size / readings[_time(size)].value * (readings["bus_factor"].value if bus else 1)


def fit(points: Mapping[int, float]) -> tuple[float, float, float]:
    """α in seconds, β in seconds per byte and the residual, from seconds by bytes."""
    weights = {size: 1 / seconds**2 for size, seconds in points.items()}
    total = sum(weights.values())
    mean_size = sum(weights[size] * size for size in points) / total
    mean_seconds = sum(weights[size] * seconds for size, seconds in points.items()) / total
    covariance = sum(weights[size] * (size - mean_size) * (points[size] - mean_seconds) for size in points)
    beta = covariance / sum(weights[size] * (size - mean_size) ** 2 for size in points)
    alpha = mean_seconds - beta * mean_size
    errors = [(alpha + beta * size) / seconds - 1 for size, seconds in points.items()]
    return alpha, beta, math.sqrt(statistics.fmean(error**2 for error in errors))


def fitted(readings: Mapping[str, Reading], world_size: int, *, part: int) -> float:
    """One part of the fit to the medians of the slowest rank."""
    return fit({size: readings[_time(size)].value for size in SIZES})[part]


def _metric(name: str, title: str, unit: str, derive: Any, column: int | None = None) -> Metric:
    return Metric(name, title, unit, column=column, derive=derive)


def _metrics_of(size: int) -> tuple[Metric, ...]:
    algorithm = functools.partial(bandwidth, size=size, bus=False)
    bus = functools.partial(bandwidth, size=size, bus=True)
    name, largest = label(size), size == SIZES[-1]
    return (
        Metric(_time(size), f"{name} message", SECONDS, hold="time"),
        _metric(
            f"algorithm_bandwidth_{name.lower()}",
            f"{name} alg. bandwidth",
            RATE,
            algorithm,
            13 if largest else None,
        ),
        _metric(f"bus_bandwidth_{name.lower()}", f"{name} bus bandwidth", RATE, bus, 14 if largest else None),
    )


METER = Bandwidth
METRICS = (
    *(metric for size in SIZES for metric in _metrics_of(size)),
    Metric("bus_factor", "bus factor", NUMBER, hold="exact", worse="different"),
    _metric("latency_seconds", "latency α", SECONDS, functools.partial(fitted, part=0), column=11),
    _metric("seconds_per_byte", "cost β", PER_BYTE, functools.partial(fitted, part=1), column=12),
    _metric("fit_residual", "fit residual", RATIO, functools.partial(fitted, part=2), column=15),
)
