"""Why a line or a verdict is what it is: one record for each reason. show/text/reasons.py has the words of each.

A new reason is a record here and a member of ``Reason``. mypy then names the place where its words are missing.
"""

import re
from typing import Literal

from perfsuite.records.change import Change
from perfsuite.records.measurement import Outcome
from perfsuite.records.record import Record


def _tag(name: str) -> str:
    """``step differs``, of StepDiffers: what a report calls the reason."""
    return re.sub(r"(?<=.)([A-Z])", r" \1", name).lower()


class _Because(Record, frozen=True, gc=False, tag_field="because", tag=_tag):
    """The base of all reasons."""


# Reasons of a metric's line.


class Wrong(_Because, frozen=True, kw_only=True):
    """The value is wrong by itself, whatever the baseline has. Rounding explains at most ``most``."""

    title: str
    unit: str
    value: int | float
    most: float = 0.0
    parts: dict[str, int | float]


class OtherRelease(_Because, frozen=True, kw_only=True):
    """The metric depends on a release, which differs."""

    release: Change


class BadNumber(_Because, frozen=True, kw_only=True):
    """The measurement, or else the baseline, has a number that is not finite, or a time that is not positive."""

    measured: bool
    finite: bool


class Absent(_Because, frozen=True, kw_only=True):
    """Only one side has the metric: it was ``measured``, or else only the baseline has it."""

    measured: bool


class Unrepeated(_Because, frozen=True, kw_only=True):
    """Another launch of the same side had another value."""

    unit: str
    other: int | float


class OtherTraining(_Because, frozen=True, kw_only=True):
    """There is less work, but a metric with this title says that the training is another one."""

    title: str


class NoMetric(_Because, frozen=True):
    """No Metric defines the reading of a line. Of a verdict: no metric is defined at all."""


class FewerSamples(_Because, frozen=True, kw_only=True):
    """Fewer steps were measured than the baseline has, or none."""

    measured: int
    recorded: int


class Origin(Record, frozen=True, kw_only=True, gc=False):
    """What a training began with that differs: a metric of meters/first_data.py, and which ``names`` of it. The orders
    of samples have no names, but may differ only ``since`` a step.
    """

    metric: str
    names: list[str] = []
    since: int | None = None


class StepDiffers(_Because, frozen=True, kw_only=True):
    """Some of the steps differ. ``first`` is the number of the first one. ``origins`` are what may explain it."""

    first: int
    differing: int
    steps: int
    origins: list[Origin] = []


class NoCommonStep(_Because, frozen=True):
    """No step has a number on both sides."""


class Capped(_Because, frozen=True):
    """The cell's memory is capped, so its times say nothing."""


class OtherGpus(_Because, frozen=True, kw_only=True):
    """The baseline was recorded on other GPUs. The links are how the GPUs of a side are connected."""

    recorded: list[str]
    here: list[str]
    recorded_links: str
    here_links: str


class NoIdentity(_Because, frozen=True):
    """This machine cannot be recognised."""


class OtherComputer(_Because, frozen=True, kw_only=True):
    """The baseline was recorded on another machine, which is this one."""

    device: str
    cores: int
    identity: str


class OtherDriver(_Because, frozen=True, kw_only=True):
    """The baseline was recorded with another driver. A side without a driver has an empty one."""

    recorded: str
    here: str


class NoTimes(_Because, frozen=True):
    """The baseline has no times from this machine."""


class Drifted(_Because, frozen=True, kw_only=True):
    """The last runs since a date are slower than the first ones, by this share."""

    by: float
    since: str


class NotRuledOut(_Because, frozen=True, kw_only=True):
    """Something changed, and the baseline's runs cannot rule out that it is slower by the share ``change``."""

    runs: int
    change: float


class Loads(Record, frozen=True, kw_only=True, gc=False):
    """The machine's loads in a measurement and in its baseline. ``busy`` says that the first one is much higher."""

    here: float
    recorded: float
    busy: bool


class Slower(_Because, frozen=True, kw_only=True):
    """The time is slower than the baseline's runs, although nothing changed, or only perfsuite's own code."""

    runs: int
    own_code: Change | None = None
    loads: Loads | None = None


class NoInterval(_Because, frozen=True):
    """The pairs of launches were not asked about the time."""


class WithGroup(_Because, frozen=True, kw_only=True):
    """The time is judged with those of a group of cells. ``own`` is the change in the cell's own pairs, a share."""

    kind: str
    name: str
    cells: int
    own: float
    pairs: int


class NothingShown(_Because, frozen=True, kw_only=True):
    """The pairs show no difference, and do not rule out the share ``change`` either."""

    change: float


class Undecided(_Because, frozen=True, kw_only=True):
    """The pairs show a difference, but they are too few to decide it, or it may be too little to matter."""

    worse: bool
    few_pairs: bool = False


class BeyondHarmless(_Because, frozen=True, kw_only=True):
    """The interval ends below the tolerance, but all of it is beyond the share ``change`` that is harmless."""

    change: float


class SomeSteps(_Because, frozen=True, kw_only=True):
    """The mean of all steps is slower. ``median`` is the change of the median step, a share."""

    median: float


class NotAllTried(_Because, frozen=True):
    """A change that could not be tried may be the cause."""


class OtherStrategy(_Because, frozen=True):
    """The sides are two strategies, which compute and count differently without one being worse."""


class BySteps(_Because, frozen=True):
    """The trial compared single steps instead of this time."""


class NothingGrew(_Because, frozen=True, kw_only=True):
    """Memory ran out, and no category is larger than in the baseline. ``part`` is the largest one."""

    part: str
    part_bytes: int | float


class Own(_Because, frozen=True, kw_only=True):
    """A user's own rule says why, by facts that it names itself."""

    facts: dict[str, str | int | float]


class WithMessage(_Because, frozen=True, kw_only=True):
    """The base of reasons that a message explains. It may be empty."""

    message: str = ""


class Uncounted(WithMessage, frozen=True):
    """The metric could not be counted."""


# Reasons of a whole verdict.


class InWords(WithMessage, frozen=True):
    """A reason that is known as a text alone, such as an exception's."""


class Ended(WithMessage, frozen=True, kw_only=True):
    """How the measurement ended, and its baseline. Out of memory: the bytes missing at least, and the largest part."""

    outcome: Outcome
    recorded: Outcome | None = None
    missing_bytes: int | None = None
    part: str = ""
    part_bytes: int = 0


class NoBaseline(Ended, frozen=True):
    """There is no baseline."""


class NoRealGpu(_Because, frozen=True):
    """An emulated cell has no baseline of a real GPU."""


class OtherKernels(_Because, frozen=True, kw_only=True):
    """There are no baselines for the kernels of this machine's CPU."""

    kernels: str


class OtherCell(_Because, frozen=True, kw_only=True):
    """The baseline is that of another cell."""

    cell: str


class UnknownOutcome(_Because, frozen=True, kw_only=True):
    """The baseline has an outcome that no baseline should have."""

    outcome: Outcome


class _Numbers(_Because, frozen=True, kw_only=True):
    """The base of reasons that are a number here and in the baseline."""

    here: int
    recorded: int


class OtherRanks(_Numbers, frozen=True):
    """The number of ranks differs from the baseline's."""


class FewerSteps(_Numbers, frozen=True):
    """Fewer steps are timed than the baseline has."""


class LessWarmup(_Numbers, frozen=True):
    """Fewer warm-up steps are made than for the baseline."""


class SideFailed(WithMessage, frozen=True, kw_only=True):
    """A side of a comparison failed."""

    side: Literal["A", "B"]


class SidesEnded(WithMessage, frozen=True, kw_only=True):
    """Not both sides of a comparison fit: their outcomes."""

    a: Outcome
    b: Outcome


# One union for each function of show/text/reasons.py.
OfNumbers = (
    Wrong | OtherRelease | BadNumber | Absent | Uncounted | Unrepeated | OtherTraining | NoMetric | NothingGrew | Own
)
OfSteps = FewerSamples | StepDiffers | NoCommonStep | SomeSteps | BySteps | OtherStrategy
OtherMachine = OtherGpus | NoIdentity | OtherComputer | OtherDriver
OfTimes = OtherMachine | Capped | NoTimes | Drifted | NotRuledOut | Slower
OfPairs = NoInterval | WithGroup | NothingShown | Undecided | BeyondHarmless | NotAllTried
OfOutcomes = InWords | Ended | NoBaseline | SideFailed | SidesEnded
OfBaselines = NoRealGpu | OtherKernels | OtherCell | UnknownOutcome | OtherRanks | FewerSteps | LessWarmup
Reason = OfNumbers | OfSteps | OfTimes | OfPairs | OfOutcomes | OfBaselines
