"""The charts of one cell, of an old side and a new one: steps and launches, memory at the peak, phases of a step."""

from collections.abc import Mapping, Sequence

from perfsuite.catalog.definitions import Metric
from perfsuite.compare.machines import why_other_machine
from perfsuite.records.measurement import Measurement
from perfsuite.records.suspects import EXPOSED, PHASES
from perfsuite.show.html import memory_chart as memory
from perfsuite.show.html.axes import BYTES, SECONDS, Quantity
from perfsuite.show.html.charts import Stack, stacked_bars
from perfsuite.show.html.curve_chart import Band, Line, lines
from perfsuite.show.html.document import Kind
from perfsuite.show.html.markup import Html

STEP, PEAK = "step_time_seconds", "peak_memory_bytes"
WAITING = "exposed communication"
MEDIANS = "The median of each phase; their sum is not the step time, which is the median of whole steps."
Sides = tuple[str, str]  # the names of the old side and the new one


def charts(
    old: Measurement | None,
    new: Measurement,
    metrics: Mapping[str, Metric],
    names: Sides,
    *,
    band: Band | None = None,
    of: str = "",
) -> list[Html]:
    """All that were measured. ``band`` is where step times usually are; ``of`` is the cell, if it is not obvious."""
    found = (
        steps(old, new, metrics, names, band, of),
        anatomy(old, new, names, of),
        curve(old, new, names, of),
        phases(old, new, names, of),
        refused(new),
    )
    return [one for one in found if one]


def steps(
    old: Measurement | None,
    new: Measurement,
    metrics: Mapping[str, Metric],
    names: Sides,
    band: Band | None = None,
    of: str = "",
) -> Html | None:
    """The timed steps, launch by launch, of both sides if one machine measured them."""
    if STEP not in metrics or STEP not in new.readings:
        return None
    shown = []
    for label, one in zip(names, (old, new), strict=True):
        if one and not why_other_machine(one.machine, new.machine):
            launches = one.by_launch(STEP)
            name = f"{label}, {len(launches)} launches" if len(launches) > 1 else label
            shown += [Line(name=name, points=_points(timed), old=one is old) for timed in launches]
    title = _title("Steps", of)
    return lines(title, shown, Quantity.of(metrics[STEP]), "timed step", band=band, kind=kind_of(new))


def _points(timed: Sequence[float]) -> list[tuple[float, float]]:
    return [(float(number), seconds) for number, seconds in enumerate(timed, 1)]


def anatomy(old: Measurement | None, new: Measurement, names: Sides, of: str = "") -> Html | None:
    """The memory at the peak by category, of both sides."""
    if PEAK not in new.readings or not new.readings[PEAK].parts:
        return None
    before = old.readings.get(PEAK) if old else None
    several = ", fullest rank" if len(new.readings[PEAK].ranks) > 1 else ""
    title = _title(f"Memory at the peak{several}", of)
    return memory.anatomy(title, before, new.readings[PEAK], names, kind_of(new))


def curve(old: Measurement | None, new: Measurement, names: Sides, of: str = "") -> Html | None:
    """Live memory over a step; none if both sides have the same peak by category, where it would show nothing."""
    before, after = (one.readings.get(PEAK) if one else None for one in (old, new))
    if before and after and before.parts == after.parts:
        return None
    title = _title("Live memory over a step", of)
    return memory.over_a_step(title, old.memory_curve if old else {}, new.memory_curve, names, kind_of(new))


def phases(old: Measurement | None, new: Measurement, names: Sides, of: str = "") -> Html | None:
    """The seconds of a step by phase, and the wait for other ranks, of both sides if one machine measured them."""
    shown, waiting = [], []
    for label, one in zip(names, (old, new), strict=True):
        if one is None or why_other_machine(one.machine, new.machine):
            continue
        parts = {name: one.readings[f"{name}_seconds"].value for name in PHASES if f"{name}_seconds" in one.readings}
        if parts:
            shown.append(Stack(label=label, parts=parts, kind=kind_of(one)))
        if EXPOSED in one.readings:
            waited = {WAITING: one.readings[EXPOSED].value}
            waiting.append(Stack(label=f"{label}, of it waiting for other ranks", parts=waited, kind=kind_of(one)))
    if not shown:
        return None
    if not any(stack.parts[WAITING] for stack in waiting):  # one rank waits for nobody
        waiting = []
    return stacked_bars(
        _title("A step by phase", of), [*shown, *waiting], SECONDS, colors=[*PHASES, WAITING], note=MEDIANS
    )


def refused(new: Measurement) -> Html | None:
    """What was alive when memory ran out, if that is known."""
    failure = new.failure
    if failure is None or not failure.parts:
        return None
    stack = Stack(label=f"rank {failure.rank}, with the refused request", parts=failure.parts, kind=kind_of(new))
    return stacked_bars("Memory when it ran out", [stack], BYTES, colors=memory.COLORS)


def kind_of(measurement: Measurement) -> Kind:
    """Whether its device was real."""
    return "emulated" if measurement.machine.emulated else "measured"


def _title(text: str, of: str) -> str:
    return f"{text}: {of}" if of else text
