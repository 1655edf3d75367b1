"""A metric and when a difference of it matters."""

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

from perfsuite.system.units import SECONDS, show


@dataclass(frozen=True)
class Materiality:
    """The smallest share of the old value from which a difference of an exact metric matters, and the reason. Less is
    shown and is not red.
    """

    share: float
    because: str


EVERY_DIFFERENCE = Materiality(0.0, "It must never differ.")
OF_A_STEP = Materiality(0.01, "1 % of the calls takes 1 % of a step at most. Trials find 2 % and more.")
OF_A_PEAK = Materiality(0.001, "torch reserves segments of 2 and 20 MiB. Of a peak of 2 GiB, 0.1 % is one of them.")
OF_A_CHECKPOINT = Materiality(0.001, "It may hold texts with times, such as a Trainer's log, whose length varies.")


@dataclass(frozen=True)
class Metric:
    """One measured number, its meaning and its rule.

    ``fold`` joins the ranks' values: "max" (the fullest rank runs out of memory first, and the slowest rank determines
    the step time), "min", "sum", "mean" or "parted" (how many ranks no longer have the digests of another).
    ``hold`` names a rule of ``compare/rules`` or of the user's ``rules/``:
    "exact" (equality of the value and its parts), "close" (every sample within the precision's bound), "error" (at most
    twice the baseline's, or what the precision explains), "least" (no part may become less), "about" (worse by the
    ``bound`` at most), "most" (the same, of the largest sample of the steps that both sides have made), "series" (every
    number of a name), "time" (the median, on the machine that recorded it), "shown" (must exist and be finite, without
    a limit) or "zero" ("exact", and more than 0 is red without a baseline
    too). ``worse`` says which direction is bad: "higher", "lower" or "different".
    ``derive`` computes the number from the other folded readings and the world size, instead of from the ranks.
    ``processes`` are the kinds of cells (Engine.process) that have it, by default those of its meter. ``depends_on``
    names versions ("python") whose minor release must be the same on both sides, or the metric is not compared.
    ``every_part`` explains a difference by all parts that moved, since a small move may cause a larger one.
    ``materiality`` is for an "exact" metric. An "about" or "most" one may be worse by the ``slack``, in its unit,
    however small it is. ``coarse`` marks a time with few samples per launch: it gets a wider tolerance on a shared
    machine, where a slow period outlasts a step.
    """

    name: str
    title: str
    unit: str  # of units.py; another one is written after a plain number
    _: KW_ONLY
    fold: Literal["max", "min", "sum", "mean", "parted"] = "max"
    hold: str = "shown"
    worse: Literal["higher", "lower", "different"] = "higher"
    bound: float = 1e-4  # relative, for a "close" metric in fp32, and for an "about" one
    column: int | None = None  # its place in the summary table; None: not in the table
    optional: bool = False  # may be missing: the device cannot measure it, or it is newer than a baseline
    derive: Callable[[Mapping[str, Any], int], float | None] | None = None
    underived: str = ""  # why ``derive`` may have no value
    processes: tuple[str, ...] = ()
    depends_on: tuple[str, ...] = ()
    every_part: bool = False
    materiality: Materiality = EVERY_DIFFERENCE
    slack: float = 0.0
    coarse: bool = False
    rule: Any = None  # the user's own rule that hold names, set by the catalog; None for perfsuite's

    @property
    def sign(self) -> int:
        """Times this sign, a larger number is worse: -1 for a rate."""
        return -1 if self.worse == "lower" else 1

    @property
    def is_time(self) -> bool:
        """Whether it is compared as a time, or a rate."""
        return self.hold == "time"

    @property
    def is_timed(self) -> bool:
        """Whether every launch of a trial measures it: a time, or a part of one. All else repeats itself."""
        return self.is_time or (self.unit == SECONDS and self.derive is None)

    def show(self, number: float) -> str:
        """A number of it as text."""
        return show(number, self.unit)
