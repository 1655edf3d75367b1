"""The charts of one cell, of an old side and a new one: steps and launches, memory at the peak, phases of a step."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from perfsuite.catalog.definitions import Metric
from perfsuite.compare.machines import why_other_machine
from perfsuite.records.measurement import Measurement
from perfsuite.records.sample import Reading
from perfsuite.records.suspects import EXPOSED, PHASES, seconds_by_phase
from perfsuite.show.html import memory_chart as memory
from perfsuite.show.html.axes import BYTES, SECONDS, Quantity
from perfsuite.show.html.charts import Stack, stacked_bars
from perfsuite.show.html.curve_chart import Axes, Band, CurveLine, lines
from perfsuite.show.html.document import Kind, Section
from perfsuite.show.html.markup import Html
from perfsuite.show.text.memory_categories import CATEGORIES

STEP, PEAK = "step_time_seconds", "peak_memory_bytes"
WAITING = "exposed communication"
MEDIANS = "The median of each phase; their sum is not the step time, which is the median of whole steps."


@dataclass(frozen=True)
class Evidence:
    """Both sides with their ``names``; ``of`` is the cell, if it is not obvious."""

    old: Measurement | None
    new: Measurement
    names: tuple[str, str]
    of: str = ""

    def charts(self, metrics: Mapping[str, Metric], band: Band | None = None) -> list[Html]:
        """All that were measured. ``band`` is where step times usually are."""
        every = (self.steps(metrics, band), self.anatomy(), self.curve(), self.phases(), self.refused())
        return [chart for chart in every if chart]

    def steps(self, metrics: Mapping[str, Metric], band: Band | None = None) -> Html | None:
        """The timed steps, launch by launch, of both sides if one machine measured them."""
        if STEP not in metrics or STEP not in self.new.readings:
            return None
        shown = []
        for label, side in self._comparable():
            launches = side.by_launch(STEP)
            name = f"{label}, {len(launches)} launches" if len(launches) > 1 else label
            for timed in launches:
                points = [(float(number), seconds) for number, seconds in enumerate(timed, 1)]
                shown.append(CurveLine(name=name, points=points, old=side is self.old))
        quantity, kind = Quantity.of(metrics[STEP]), kind_of(self.new)
        return lines(self._title("Steps"), shown, Axes(quantity, "timed step"), band=band, kind=kind)

    def anatomy(self) -> Html | None:
        """The memory at the peak by category, of both sides."""
        before, after = self._peaks()
        if not after or not after.parts:
            return None
        fullest = ", fullest rank" if self.new.world_size > 1 else ", fullest device"
        several = fullest if len(after.ranks) > 1 else ""
        title = self._title(f"Memory at the peak{several}")
        return memory.anatomy(title, before, after, self.names, kind_of(self.new))

    def curve(self) -> Html | None:
        """Live memory over a step; none if both sides have the same peak by category, where it would show nothing."""
        before, after = self._peaks()
        if before and after and before.parts == after.parts:
            return None
        curves = self.old.memory_curve if self.old else {}, self.new.memory_curve
        return memory.over_a_step(self._title("Live memory over a step"), *curves, self.names, kind_of(self.new))

    def phases(self) -> Html | None:
        """The seconds of a step by phase, and the wait for other ranks, of both sides if one machine measured them."""
        shown, waiting = [], []
        for label, side in self._comparable():
            parts = seconds_by_phase(side.readings)
            if parts:
                shown.append(Stack(label=label, parts=parts, kind=kind_of(side)))
            if EXPOSED in side.readings:
                waited = {WAITING: side.readings[EXPOSED].value}
                label = f"{label}, of it waiting for other ranks"
                waiting.append(Stack(label=label, parts=waited, kind=kind_of(side)))
        if not shown:
            return None
        if not any(stack.parts[WAITING] for stack in waiting):  # one rank waits for nobody
            waiting = []
        colors = list(dict.fromkeys([*PHASES, WAITING, *(name for stack in shown for name in stack.parts)]))
        return stacked_bars(self._title("A step by phase"), [*shown, *waiting], SECONDS, colors=colors, note=MEDIANS)

    def refused(self) -> Html | None:
        """What was alive when memory ran out, if that is known."""
        failure = self.new.failure
        if failure is None or not failure.parts:
            return None
        label = f"rank {failure.rank}, with the refused request"
        stack = Stack(label=label, parts=failure.parts, kind=kind_of(self.new))
        return stacked_bars("Memory when it ran out", [stack], BYTES, colors=list(CATEGORIES))

    def peak_by_category(self) -> list[Section]:
        """The table of the peak, if its categories are known."""
        before, after = self._peaks()
        if not after or not after.parts:
            return []
        return [Section(heading="Peak memory by category", tables=[memory.difference(before, after, self.names)])]

    def _peaks(self) -> tuple[Reading | None, Reading | None]:
        return self.old.readings.get(PEAK) if self.old else None, self.new.readings.get(PEAK)

    def _comparable(self) -> Iterator[tuple[str, Measurement]]:
        """The sides that the new side's machine has measured."""
        for name, side in zip(self.names, (self.old, self.new), strict=True):
            if side and not why_other_machine(side.machine, self.new.machine):
                yield name, side

    def _title(self, text: str) -> str:
        return f"{text}: {self.of}" if self.of else text


def kind_of(measurement: Measurement) -> Kind:
    """Whether its device was real."""
    return "emulated" if measurement.machine.emulated else "measured"
