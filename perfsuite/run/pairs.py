"""The pairs of launches of one cell on both sides: at once with alternating steps, or one after the other.

They measure times alone: what repeats itself is counted by one launch of each side.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from perfsuite.catalog.cell import Cell, Hardware
from perfsuite.catalog.definitions import Metric
from perfsuite.compare.paired_times import differences, errors
from perfsuite.compare.pooled_pairs import Difference
from perfsuite.records.measurement import Measurement
from perfsuite.run.duet import measure_in_turns
from perfsuite.run.runner import Runner, Settings, Watch

ORDERS = ((0, 1), (1, 0))  # of a pair: A first, or B first
MOST_STEPS = 500
TURN_SECONDS, FEWEST_TURNS = 0.15, 6  # the first step of a turn finds the other side's data in the caches
FEWEST_STEPS = 8  # of a side, whose spread tells how far the pair may be trusted
MOST_WARMUP = 2  # after the recorded step: on a CPU no later step is slower than the others


def interleave_of(hardware: Iterable[Hardware]) -> str:
    """What alternates by default: the steps of both sides on CPUs, whose memory holds both, else their launches."""
    return "steps" if all(each.device is None for each in hardware) else "launches"


@dataclass(frozen=True)
class PairDesign:
    """How the pairs of a cell are launched. One takes about so many ``seconds`` for the timed steps of both sides;
    ``step_seconds`` is how long a step takes, None if nothing tells. ``interleave`` is "steps" or "launches".
    """

    seconds: float
    step_seconds: float | None
    interleave: str


@dataclass
class Pairs:
    """``cells`` is the cell on each side, ``settings`` are those of its launches, and ``least`` the fewest steps of a
    launch.
    """

    cells: tuple[Cell, Cell]
    metrics: Sequence[Metric]
    settings: Settings
    least: int
    in_turns: bool
    launches: tuple[list[Measurement], list[Measurement]] = field(default_factory=lambda: ([], []))

    @classmethod
    def of(
        cls, cells: tuple[Cell, Cell], metrics: Sequence[Metric], settings: Settings, design: "PairDesign"
    ) -> "Pairs":
        """The pairs of a cell, none yet."""
        least, in_turns = min(settings.steps, FEWEST_STEPS), design.interleave == "steps"
        steps = steps_of_pair(design.step_seconds, least, design.seconds)
        settings = replace(settings, steps=steps, turn=steps_of_turn(design.step_seconds, steps))
        if cells[1].hardware.device is None:  # no step of a CPU runs ahead of a device, so a block tells no more
            settings = replace(settings, unfenced=False, warmup=min(settings.warmup, MOST_WARMUP))
        return cls(cells, metrics, settings, least, in_turns)

    def __len__(self) -> int:
        return len(self.launches[0])

    @property
    def timed(self) -> list[Metric]:
        """The times that both sides have. A metric that a side lacks ends up red or left out; another pair does not
        change that.
        """
        both = [launch for side in self.launches for launch in side]
        return [
            metric
            for metric in self.metrics
            if metric.is_time and all(metric.name in launch.readings for launch in both)
        ]

    @property
    def failed(self) -> bool:
        """Whether a launch did not fit, so that there are no times to compare."""
        return any(launch.outcome != "fits" for side in self.launches for launch in side)

    def differences(self, metric: Metric) -> list[Difference]:
        """The logarithm of B's time of A's in each pair, more is worse, with its standard error."""
        spreads = errors(*self.launches, metric.name)
        ratios = differences(*self.launches, metric.name)
        return [Difference(metric.sign * by, error) for by, error in zip(ratios, spreads, strict=True)]

    def add(self, runners: Sequence[Runner], watch: Watch) -> tuple[Measurement, Measurement] | None:
        """Launch both sides. None if a script has no room for so many steps: the next pair makes what it has.

        If the first pair fails at once, its sides are launched one after the other from then on: a script may have a
        fixed port, or need most of the memory.
        """
        for runner in runners:
            runner.settings = self.settings
        pair = self._launched(runners, watch)
        made = [launch.failure.timed_steps for launch in pair.values() if launch.failure]
        if self.settings.steps > self.least and made and None not in made:
            fewest = min(filter(None, made), default=0)
            self.settings = replace(self.settings, steps=max(self.least, fewest))
            return None
        if self.in_turns and None in made and not len(self):
            self.in_turns = False
            pair = self._launched(runners, watch)
        self.keep(pair[0], pair[1])
        return pair[0], pair[1]

    def keep(self, a: Measurement, b: Measurement) -> None:
        """Add a pair that was launched before."""
        self.launches[0].append(a)
        self.launches[1].append(b)

    def _launched(self, runners: Sequence[Runner], watch: Watch) -> Mapping[int, Measurement]:
        order = random.choice(ORDERS)
        if self.in_turns:
            pair = measure_in_turns(runners, self.cells, order[0], watch, times_only=True)
            return dict(enumerate(pair))
        return {side: runners[side].measure(self.cells[side], watch, times_only=True) for side in order}


def steps_of_pair(step_seconds: float | None, least: int, seconds: float) -> int:
    """Enough that a pair takes about so many seconds, but at least ``least`` and at most MOST_STEPS."""
    if not step_seconds:
        return least
    return max(least, min(MOST_STEPS, round(seconds / (len(ORDERS) * step_seconds))))


def steps_of_turn(step_seconds: float | None, steps: int) -> int:
    """Enough that a turn takes about TURN_SECONDS, but so few that a launch has FEWEST_TURNS."""
    return max(1, min(round(TURN_SECONDS / step_seconds), steps // FEWEST_TURNS)) if step_seconds else 1
