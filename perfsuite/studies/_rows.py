"""What a study has measured: rows with outcomes, their ratios, and the time to train that follows from their steps."""

import math
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from perfsuite.catalog.definitions import Study
from perfsuite.errors import UsageError
from perfsuite.records import Measurement

RESAMPLES = 1000
COVERAGE = 0.95
# Student's t, two-sided 95 %, by degrees of freedom; beyond the last the next smaller entry, which is wider, is used.
_STUDENT = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26, 10: 2.23, 15: 2.13}
_STUDENT |= {20: 2.09, 30: 2.04, 60: 2.00, 120: 1.98}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One cell of a study. ``outcome`` is the measurement's, or "refused" with the ``reason`` where none was made."""

    model: str
    row: str
    column: str
    cell: str
    outcome: str
    reason: str = ""
    note: Mapping[str, str] = field(default_factory=dict)
    measurement: Measurement | None = None  # of all rounds together
    rounds: tuple[tuple[float, ...], ...] = ()  # the step times of each round

    @property
    def name(self) -> str:
        """How a sentence names it."""
        return f"{self.row} at {self.column}" if self.column else self.row

    @property
    def fits(self) -> bool:
        return self.outcome == "fits"

    @property
    def why(self) -> str:
        """Why it has no number, as the end of a sentence."""
        return " ".join(f"{self.outcome}: {self.reason}".split()).rstrip(".") + "."

    def value(self, metric: str) -> float | None:
        """The metric's value; None where the cell has none."""
        reading = self.measurement.readings.get(metric) if self.measurement else None
        return None if reading is None else reading.value

    def parts(self, metric: str) -> Mapping[str, int]:
        """The metric's parts, empty where the cell has none."""
        reading = self.measurement.readings.get(metric) if self.measurement else None
        return {} if reading is None else reading.parts


@dataclass(frozen=True)
class Ratio:
    """How many times another's number one's is; ``low`` to ``high`` is where 95 % of resamples of the steps lie."""

    value: float
    low: float
    high: float

    @property
    def differs(self) -> bool:
        """Whether the noise of the steps cannot explain the difference."""
        return self.low > 1 or self.high < 1

    def __str__(self) -> str:
        exact = self.low == self.high
        return f"{self.value:.2f}×" if exact else f"{self.value:.2f}× ({self.low:.2f}–{self.high:.2f})"


def ratio(one: Row, other: Row, metric: str) -> Ratio | None:
    """``one`` divided by ``other``; None where one of them lacks the number.

    Of step times and of what is derived from them alone the noise is known: rounds, and steps within them, are drawn
    again a thousand times, and their medians divided. Rounds matter: what else the machine does while a cell trains
    slows all of its steps, and two identical cells then differ by more than their steps. What is counted has no noise.
    """
    above, below = one.value(metric), other.value(metric)
    if above is None or not below:
        return None
    value = above / below
    if one is other or metric not in _TIMED or not (one.rounds and other.rounds):
        return Ratio(value, value, value)
    draw = random.Random(0)
    drawn = sorted(_draw(one.rounds, draw) / _draw(other.rounds, draw) for _ in range(RESAMPLES))
    low, high = drawn[round(RESAMPLES * (1 - COVERAGE) / 2)], drawn[round(RESAMPLES * (1 + COVERAGE) / 2)]
    if metric != "step_time_seconds":  # a rate: work per time
        scale = value * one.value("step_time_seconds") / other.value("step_time_seconds")  # type: ignore[operator]
        return Ratio(value, scale / high, scale / low)
    return Ratio(value, low, high)


_TIMED = {"step_time_seconds", "tokens_per_second", "flops_per_rank", "mfu", "hfu"}


def _draw(rounds: Sequence[Sequence[float]], draw: random.Random) -> float:
    """The median of as many rounds, drawn with replacement, of as many steps, drawn with replacement."""
    drawn = (draw.choices(steps, k=len(steps)) for steps in draw.choices(rounds, k=len(rounds)))
    return statistics.median([step for steps in drawn for step in steps])


def rounds_of(measurements: Sequence[Measurement]) -> tuple[tuple[float, ...], ...]:
    """The step times of every launch that has some: a study's rounds, and each launch of a baseline."""
    return tuple(tuple(steps) for one in measurements for steps in one.by_launch("step_time_seconds") if steps)


@dataclass(frozen=True)
class Length:
    """How long a training is: in optimizer steps, or in token positions of all ranks, padding included."""

    steps: int | None = None
    tokens: int | None = None

    def steps_of(self, measurement: Measurement) -> int:
        """Optimizer steps of this cell. Raises UsageError for a cell that counts no tokens."""
        if self.tokens is None:
            return self.steps or 0
        if "tokens" not in measurement.readings:
            raise UsageError(f"{measurement.cell} counts no tokens: say how many steps it trains.")
        return math.ceil(self.tokens / measurement.readings["tokens"].value)

    def __str__(self) -> str:
        return f"{self.tokens:,} tokens" if self.tokens is not None else f"{self.steps:,} steps"


@dataclass(frozen=True)
class Training:
    """The time to train in seconds. ``uncertainty_seconds`` is half of the 95 % interval; None after a single step."""

    steps: int
    seconds: float
    uncertainty_seconds: float | None


def time_to_train(measurement: Measurement, rounds: Sequence[Sequence[float]], length: Length) -> Training | None:
    """The sum of ``length``'s step times, foretold from the rounds' steps; None for a cell that has none.

    Mean × steps. The spread s of n measured steps makes N steps uncertain by t·s·√(N²/n + N): the mean is known to
    s/√n, and every step to come differs from it by s. Where the R rounds' means spread by more, it is t·S·N/√R. It is
    of this machine in the state in which it measured.
    """
    samples = [step for steps in rounds for step in steps]
    if not samples:
        return None
    steps = length.steps_of(measurement)
    seconds = statistics.fmean(samples) * steps
    if len(samples) < 2:
        return Training(steps, seconds, None)
    within = _student(samples) * statistics.stdev(samples) * math.sqrt(steps**2 / len(samples) + steps)
    means = [statistics.fmean(one) for one in rounds]
    between = _student(means) * statistics.stdev(means) * steps / math.sqrt(len(means)) if len(means) > 1 else 0.0
    return Training(steps, seconds, max(within, between))


def _student(samples: Sequence[float]) -> float:
    return max((freedom, t) for freedom, t in _STUDENT.items() if freedom <= len(samples) - 1)[1]


@dataclass(frozen=True)
class Results:
    """The rows of one model of a study, as its ``answer`` reads them."""

    study: Study
    rows: tuple[Row, ...]

    @property
    def row_names(self) -> list[str]:
        """In the study's order."""
        return list(dict.fromkeys(row.row for row in self.rows))

    @property
    def columns(self) -> list[str]:
        """In the study's order."""
        return list(dict.fromkeys(row.column for row in self.rows))

    def get(self, row: str, column: str | None = None) -> Row:
        """The row of that name, in the first column unless another is named."""
        wanted = self.columns[0] if column is None else column
        return next(item for item in self.rows if (item.row, item.column) == (row, wanted))

    def reference(self, row: Row) -> Row:
        """What a row's numbers are divided by: itself where the study names nothing."""
        return self.get(self.study.reference or row.row, self.study.reference_column or row.column)

    def compare(self, one: Row, other: Row, metric: str, what: str) -> str:
        """``zero3 has 1.32× (1.25–1.40) the step time of zero2``, or why that cannot be said."""
        for row in (one, other):
            if not row.fits:
                return f"{row.name} cannot be compared: {row.why}"
        found = ratio(one, other, metric)
        if found is None:
            return f"{one.name} and {other.name} have no {what} in common."
        noise = "" if found.differs or found.low == found.high else ", which the noise of the steps explains"
        return f"{one.name} has {found} the {what} of {other.name}{noise}."

    def best(self, metric: str, pick: Callable[..., Row] = min, column: str | None = None) -> Row | None:
        """The row with the smallest (``pick=max``: largest) value; None where no row has one."""
        known = [row for row in self.rows if row.value(metric) is not None and column in (None, row.column)]
        return pick(known, key=lambda row: row.value(metric)) if known else None
