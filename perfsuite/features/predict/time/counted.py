"""The step of a cell on a CPU: what it counts times what one of each costs on a machine. The constants are fitted.

Small models on a CPU wait for the host: an operator costs the same few microseconds whatever it computes, and a message
of gloo about a millisecond. A trace counts both without a run (Prediction.readings), and so does a measured cell.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perfsuite.catalog.cell import Cell
from perfsuite.features.predict.calibration import Calibration
from perfsuite.records.measurement import Measurement
from perfsuite.records.sample import Reading

FOLDS = 5
ROUNDS, SWEEPS = 6, 30  # of reweighting, and of the coordinates in each
LEAST = 0.2  # an error below counts by its square, one above by its size: some cells were measured on a busy machine
COUNTS = ("operators", "hardware_flop")  # without these nothing is known of a step
NAMES = ("operator", "operator_beside", "message", "byte", "matmul", "matmul_half")
# The dtype of products, by technique; all others compute in fp32. Cells of fp8 measure the rate of bf16.
PRECISIONS = {name: name for name in ("bf16", "fp16", "pure_bf16")}
PRECISIONS |= dict.fromkeys(("fp8", "fp8_rowwise", "fp8_gather"), "bf16")


@dataclass(frozen=True)
class Counted:
    """What one rank does in a step: operators, FLOP, messages and their bytes. ``ranks`` is the world size."""

    operators: float
    flop: float
    messages: float
    bytes: float
    ranks: int
    precision: str

    @classmethod
    def of(cls, cell: Cell, readings: Mapping[str, Reading]) -> "Counted":
        """The counts of a measured or of a traced cell; FLOP are those of all ranks in both."""
        ranks = cell.hardware.world_size
        value = {name: float(readings[name].value) if name in readings else 0.0 for name in _READ}
        names = [choice.technique.name for choice in cell.strategy.choices]
        return cls(
            operators=value["operators"],
            flop=value["hardware_flop"] / ranks,
            messages=value["collectives"],
            bytes=value["communication_bytes"],
            ranks=ranks,
            precision=next((PRECISIONS[name] for name in names if name in PRECISIONS), "fp32"),
        )

    def terms(self, cores: int, flops: Mapping[str, float]) -> tuple[float, ...]:
        """How many times each constant of NAMES is paid; matmuls in seconds at the rate in FLOP/s of their precision.

        More ranks than cores take turns.
        """
        turns = max(1.0, self.ranks / cores)
        matmuls = self.flop * turns / (flops.get(self.precision) or flops["fp32"])
        operators = self.operators * turns
        products = (matmuls, 0.0) if self.precision == "fp32" else (0.0, matmuls)
        return operators, operators if self.ranks > 1 else 0.0, self.messages, self.bytes, *products


_READ = ("operators", "hardware_flop", "collectives", "communication_bytes")


@dataclass(frozen=True)
class CountedRow:
    """A measured cell."""

    cell: Cell
    counted: Counted
    seconds: float
    peak_flops: float


def row_of(cell: Cell, measurement: Measurement) -> CountedRow | None:
    """The row of a training on a CPU; None if its step was not timed or not counted."""
    readings = measurement.readings
    known = all(name in readings for name in (*COUNTS, "step_time_seconds", "peak_flops"))
    trains = cell.strategy.engine.process == "training"
    if measurement.outcome != "fits" or not known or not trains or cell.hardware.device is not None:
        return None
    seconds, peak = (float(readings[name].value) for name in ("step_time_seconds", "peak_flops"))
    return CountedRow(cell, Counted.of(cell, readings), seconds, peak)


def predicted_parts(counted: Counted, found: Calibration) -> dict[str, float]:
    """The seconds of a step: of operators, of messages, and of multiplying matrices."""
    terms = counted.terms(found.cores, found.flops)
    costs = [count * found.seconds[name] for name, count in zip(NAMES, terms, strict=True)]
    return {"operators": costs[0] + costs[1], "messages": costs[2] + costs[3], "matmuls": costs[4] + costs[5]}


def calibrate(rows: Sequence[CountedRow], machine: str, cores: int) -> Calibration:
    """The constants that fit the rows, and the errors of those that the constants had not seen."""
    held = []
    for fold in range(FOLDS):
        seen = [row for at, row in enumerate(rows) if at % FOLDS != fold]
        one = _fitted(seen, machine, cores)
        held += [(row, sum(predicted_parts(row.counted, one).values())) for row in rows[fold::FOLDS]]
    ratios = sorted(row.seconds / predicted for row, predicted in held)
    steps = statistics.quantiles(ratios, n=20, method="inclusive")
    errors = [abs(predicted / row.seconds - 1) for row, predicted in held]
    found = _fitted(rows, machine, cores)
    right, pairs = engines_in_order(held)
    return Calibration(
        machine=machine,
        cores=cores,
        cells=sorted(row.cell.id for row in rows),
        seconds=found.seconds,
        flops=found.flops,
        median_error=statistics.median(errors),
        interval=(min(1.0, steps[0]), max(1.0, steps[-1])),
        pairs=pairs,
        pairs_in_order=right,
    )


CLEAR = 1.2  # times as long: less is not an order, on a machine that others use


def engines_in_order(held: Sequence[tuple[CountedRow, float]]) -> tuple[int, int]:
    """Of the pairs of engines that train one model in one way, and clearly differ: how many are predicted in order."""
    right = pairs = 0
    for at, (one, first) in enumerate(held):
        for other, second in held[at + 1 :]:
            if _way(one.cell) != _way(other.cell) or max(one.seconds, other.seconds) < CLEAR * min(
                one.seconds, other.seconds
            ):
                continue
            pairs += 1
            right += (one.seconds < other.seconds) == (first < second)
    return right, pairs


def _way(cell: Cell) -> tuple[str, str, str]:
    """All of a cell but its engine."""
    return cell.model.name, cell.strategy.name.partition("+")[2], cell.hardware.name


def _fitted(rows: Sequence[CountedRow], machine: str, cores: int) -> Calibration:
    """The constants alone. The rates of matmuls are the medians of what the cells measured."""
    names = {row.counted.precision for row in rows} | {"fp32"}
    rates = {
        name: statistics.median(
            [row.peak_flops for row in rows if row.counted.precision == name] or [row.peak_flops for row in rows]
        )
        for name in names
    }
    terms = [[term / row.seconds for term in row.counted.terms(cores, rates)] for row in rows]
    seconds = dict(zip(NAMES, _non_negative(terms), strict=True))
    return Calibration(machine=machine, cores=cores, cells=[], seconds=seconds, flops=rates)


def _non_negative(terms: Sequence[Sequence[float]]) -> list[float]:
    """The factors ≥ 0 of the columns whose sum comes nearest to 1 in all rows, by coordinate descent."""
    scales = [max(column) or 1.0 for column in zip(*terms, strict=True)]
    scaled = [[term / scale for term, scale in zip(one, scales, strict=True)] for one in terms]
    weights, found = [1.0] * len(scaled), [0.0] * len(scales)

    def off(number: int) -> float:
        return 1 - sum(map(float.__mul__, scaled[number], found))

    for _ in range(ROUNDS):
        for _ in range(SWEEPS):
            for at in range(len(found)):
                size = sum(weight * one[at] ** 2 for weight, one in zip(weights, scaled, strict=True))
                slope = sum(weights[number] * one[at] * off(number) for number, one in enumerate(scaled))
                found[at] = max(0.0, found[at] + slope / size) if size else 0.0
        weights = [1 / max(abs(off(number)), LEAST) for number in range(len(scaled))]
    # An error of a share counts a time that is too long more than one that is too short: the median is set right.
    middle = statistics.median(1 - off(number) for number in range(len(scaled)))
    return [factor / scale / middle for factor, scale in zip(found, scales, strict=True)]
