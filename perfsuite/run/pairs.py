"""The pairs of launches of one cell on both sides of an A/B: at once with alternating steps, or one after the other.

The first pair counts what repeats itself, and the others measure times alone.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from perfsuite.catalog.cell import Cell
from perfsuite.catalog.definitions import Metric
from perfsuite.compare.paired import decision
from perfsuite.compare.paired_times import differences, errors
from perfsuite.compare.pooling import Difference
from perfsuite.compare.terms import Terms
from perfsuite.records.measurement import Measurement
from perfsuite.records.verdict import Status
from perfsuite.run.duet import measure_in_turns
from perfsuite.run.runner import Runner, Settings, Watch

ORDERS = ((0, 1), (1, 0))  # of a pair: A first, or B first
MOST_STEPS = 500


@dataclass
class Pairs:
    """Those of one cell, in the ``settings`` of its launches; ``least`` are the fewest steps of a launch. ``faults``
    are those of both sides.
    """

    cells: tuple[Cell, Cell]
    metrics: Sequence[Metric]
    settings: Settings
    least: int
    in_turns: bool
    faults: tuple[Sequence[str], Sequence[str]] = ((), ())
    launches: tuple[list[Measurement], list[Measurement]] = field(default_factory=lambda: ([], []))

    def __len__(self) -> int:
        return len(self.launches[0])

    @property
    def timed(self) -> list[Metric]:
        """The times that both sides have. A metric that a side lacks ends up red or left out; another pair does not
        change that.
        """
        both = [one for side in self.launches for one in side]
        return [
            metric for metric in self.metrics if metric.is_time and all(metric.name in one.readings for one in both)
        ]

    @property
    def failed(self) -> bool:
        """Whether a launch did not fit, so that there are no times to compare."""
        return any(one.outcome != "fits" for side in self.launches for one in side)

    def differences(self, metric: Metric) -> list[float]:
        """Of each pair, in logarithms; more is worse."""
        return [metric.sign * one for one in differences(*self.launches, metric.name)]

    def with_errors(self, metric: Metric) -> list[Difference]:
        """The same with their standard errors."""
        known = errors(*self.launches, metric.name)
        return [Difference(by, error) for by, error in zip(self.differences(metric), known, strict=True)]

    def decided(self, terms: Terms) -> bool:
        """Whether a time is slower, or none can be."""
        decisions = [
            decision(self.differences(metric), terms.tolerance_of(metric), terms.red_rate)
            for metric in ([] if self.failed else self.timed)
        ]
        return Status.REGRESSED in decisions or Status.UNDECIDED not in decisions

    def add(self, runners: Sequence[Runner], watch: Watch) -> bool:
        """Launch both sides. False if a script has no room for so many steps: the next pair makes what it has."""
        for runner in runners:
            runner.settings = self.settings
        pair = self._launched(runners, watch)
        made = [one.failure.timed_steps for one in pair.values() if one.failure]
        if self.settings.steps > self.least and made and None not in made:
            fewest = min(filter(None, made), default=0)
            self.settings = replace(self.settings, steps=max(self.least, fewest))
            return False
        self.keep(pair[0], pair[1])
        return True

    def keep(self, a: Measurement, b: Measurement) -> None:
        """A pair that is known."""
        self.launches[0].append(a)
        self.launches[1].append(b)

    def _launched(self, runners: Sequence[Runner], watch: Watch) -> Mapping[int, Measurement]:
        order, times_only = random.choice(ORDERS), len(self) > 0
        if self.in_turns:
            pair = measure_in_turns(runners, self.cells, order[0], watch, self.faults, times_only)
            return dict(enumerate(pair))
        return {side: runners[side].measure(self.cells[side], watch, self.faults[side], times_only) for side in order}


def first_launch(measurement: Measurement | None, timed: Sequence[Metric]) -> Measurement | None:
    """The first launch alone, from a measurement of several, which has the times of all."""
    if measurement is None:
        return None
    readings = dict(measurement.readings)
    for name in [metric.name for metric in timed if metric.name in readings and readings[metric.name].samples]:
        readings[name] = msgspec.structs.replace(readings[name], samples=measurement.by_launch(name)[0])
    return msgspec.structs.replace(measurement, readings=readings, launches=measurement.launches[:1])


def steps_of_pair(step_seconds: float | None, least: int, seconds: float) -> int:
    """Enough that a pair takes about so many seconds, but at least ``least`` and at most MOST_STEPS."""
    if not step_seconds:
        return least
    return max(least, min(MOST_STEPS, round(seconds / (len(ORDERS) * step_seconds))))
