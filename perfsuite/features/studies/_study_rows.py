"""The results of a study: rows with outcomes, their ratios, and the time to train that follows from their steps."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from perfsuite.catalog.definitions import Study
from perfsuite.compare.noise import level_of, relative, student
from perfsuite.errors import UsageError
from perfsuite.records.measurement import Measurement

LEAST_SPREAD = 0.005  # of launches: three of them can agree by chance
COVERAGE = 0.95


@dataclass(frozen=True, kw_only=True)
class StudyRow:
    """One cell of a study. ``outcome`` is the measurement's, or "refused" with the ``reason`` if none was made."""

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
        """Its name in a sentence."""
        return f"{self.row} at {self.column}" if self.column else self.row

    @property
    def fits(self) -> bool:
        return self.outcome == "fits"

    @property
    def why(self) -> str:
        """Why it has no number, as the end of a sentence."""
        return " ".join(f"{self.outcome}: {self.reason}".split()).rstrip(".") + "."

    def value(self, metric: str) -> float | None:
        """The metric's value; None if the cell has none."""
        reading = self.measurement.readings.get(metric) if self.measurement else None
        return None if reading is None else reading.value

    def parts(self, metric: str) -> Mapping[str, int]:
        """The metric's parts, empty if the cell has none."""
        reading = self.measurement.readings.get(metric) if self.measurement else None
        return {} if reading is None else reading.parts


@dataclass(frozen=True)
class Ratio:
    """A number divided by another one. ``error`` is the standard error of its logarithm: 0 for counts, and infinite if
    unknown. ``freedom`` are its degrees of freedom.
    """

    value: float
    error: float = 0.0
    freedom: int = 0

    @property
    def interval(self) -> tuple[float, float] | None:
        """Its interval with 95 % confidence; None if the noise is unknown."""
        reach = _quantile(self.freedom) * self.error if self.error else 0.0
        return None if reach == math.inf else (self.value * math.exp(-reach), self.value * (relative(reach) + 1))

    @property
    def differs(self) -> bool:
        """Whether noise cannot explain the difference."""
        return apart(self, Ratio(1.0))

    def __str__(self) -> str:
        text = f"{self.value:.2f}×"
        return f"{text} ({self.interval[0]:.2f}–{self.interval[1]:.2f})" if self.error and self.interval else text


def apart(one: Ratio, other: Ratio, pairs: int = 1) -> bool:
    """Whether noise cannot explain the difference of two ratios, the most distant of so many pairs (Bonferroni)."""
    error = math.hypot(one.error, other.error)
    reach = _quantile(one.freedom + other.freedom, pairs) * error if error else 0.0
    return abs(math.log(one.value / other.value)) > reach


def _quantile(freedom: int, pairs: int = 1) -> float:
    return student(1 - (1 - COVERAGE) / 2 / pairs, freedom) if freedom else math.inf


def ratio(one: StudyRow, other: StudyRow, metric: str) -> Ratio | None:
    """``one`` divided by ``other``; None if one of them lacks the number.

    Only the noise of step times, and of numbers derived from them alone, is known. Their ratio is that of the geometric
    means of the rounds' medians, and its noise follows from these, by Student's t with the pooled variance. Rounds
    matter, not steps: other load on the machine slows all steps of a cell, so two identical cells differ by more than
    their steps do. Counts have no noise.
    """
    above, below = one.value(metric), other.value(metric)
    if above is None or not below:
        return None
    value = above / below
    if one is other or metric not in _TIMED or not (one.rounds and other.rounds):
        return Ratio(value)
    levels = [[level_of(steps) for steps in row.rounds] for row in (one, other)]
    times = math.exp(statistics.fmean(levels[0]) - statistics.fmean(levels[1]))
    if metric == "step_time_seconds":
        value = times
    else:  # a rate: work per time, whose work has no noise
        value *= one.value("step_time_seconds") / other.value("step_time_seconds") / times  # type: ignore[operator]
    freedom = sum(len(each) - 1 for each in levels)
    if not freedom:
        return Ratio(value, math.inf)
    squares = sum((level - statistics.fmean(each)) ** 2 for each in levels for level in each)
    spread = max(LEAST_SPREAD, math.sqrt(squares / freedom))
    return Ratio(value, spread * math.sqrt(sum(1 / len(each) for each in levels)), freedom)


_TIMED = {"step_time_seconds", "tokens_per_second", "flops_per_rank", "mfu", "hfu"}


def rounds_of(measurements: Sequence[Measurement]) -> tuple[tuple[float, ...], ...]:
    """The step times of every launch that has some: a study's rounds, and each launch of a baseline."""
    return tuple(
        tuple(steps) for measurement in measurements for steps in measurement.by_launch("step_time_seconds") if steps
    )


@dataclass(frozen=True)
class Length:
    """The length of a training: in optimizer steps, or in token positions of all ranks, including padding."""

    steps: int | None = None
    tokens: int | None = None

    def steps_of(self, measurement: Measurement) -> int:
        """Optimizer steps of this cell. Raises UsageError for a cell that does not count tokens."""
        if self.tokens is None:
            return self.steps or 0
        if "tokens" not in measurement.readings:
            raise UsageError(f"{measurement.cell} counts no tokens: leave out --tokens.")
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
    """The sum of ``length``'s step times, predicted from the rounds' steps; None for a cell that has none.

    Mean × steps. The spread s of n measured steps makes N steps uncertain by t·s·√(N²/n + N): the mean is known to
    s/√n, and every future step differs from it by s. If the R rounds' means spread by more, it is t·S·N/√R. It applies
    to this machine in the state in which it measured.
    """
    samples = [step for steps in rounds for step in steps]
    if not samples:
        return None
    steps = length.steps_of(measurement)
    seconds = statistics.fmean(samples) * steps
    if len(samples) < 2:
        return Training(steps, seconds, None)
    within = _quantile(len(samples) - 1) * statistics.stdev(samples) * math.sqrt(steps**2 / len(samples) + steps)
    means = [statistics.fmean(one) for one in rounds]
    between = (
        _quantile(len(means) - 1) * statistics.stdev(means) * steps / math.sqrt(len(means)) if len(means) > 1 else 0.0
    )
    return Training(steps, seconds, max(within, between))


_NOISE = ("within the noise of the rounds", "noise unknown with one round")


@dataclass(frozen=True)
class Results:
    """The rows of one model of a study, as its ``answer`` reads them."""

    study: Study
    rows: tuple[StudyRow, ...]

    @property
    def row_names(self) -> list[str]:
        """In the study's order."""
        return list(dict.fromkeys(row.row for row in self.rows))

    @property
    def columns(self) -> list[str]:
        """In the study's order."""
        return list(dict.fromkeys(row.column for row in self.rows))

    def get(self, row: str, column: str | None = None) -> StudyRow:
        """The row of that name, in the first column unless another is given."""
        wanted = self.columns[0] if column is None else column
        return next(item for item in self.rows if (item.row, item.column) == (row, wanted))

    def reference(self, row: StudyRow) -> StudyRow:
        """The row by which a row's numbers are divided: itself if the study names none."""
        return self.get(self.study.reference or row.row, self.study.reference_column or row.column)

    def compare(self, one: StudyRow, other: StudyRow, metric: str, what: str) -> str:
        """``zero3 has 1.32× (1.25–1.40) the step time of zero2``, or why there is no such sentence."""
        for row in (one, other):
            if not row.fits:
                return f"{row.name} cannot be compared: {row.why}"
        found = ratio(one, other, metric)
        if found is None:
            return f"{one.name} and {other.name} have no {what} in common."
        noise = "" if found.differs or not found.error else f", {_NOISE[found.interval is None]}"
        return f"{one.name} has {found} the {what} of {other.name}{noise}."

    def best(self, metric: str, column: str | None = None) -> StudyRow | None:
        """The row with the smallest value; None if no row has one."""
        known = [row for row in self.rows if row.value(metric) is not None and column in (None, row.column)]
        return min(known, key=lambda row: row.value(metric) or 0.0, default=None)
