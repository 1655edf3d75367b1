"""The page of one measurement by itself: charts, numbers, and what they consist of."""

from collections.abc import Iterable, Sequence

from perfsuite.catalog.definitions import Metric
from perfsuite.compare.standing_out import standing_out
from perfsuite.records.measurement import Measurement
from perfsuite.records.suspects import part_name
from perfsuite.show.html.cell_evidence import Evidence, kind_of
from perfsuite.show.html.document import Document, PageEntry, Section, Table
from perfsuite.show.text.first_screen import said_of
from perfsuite.show.text.measured import DETAILED, in_order, largest
from perfsuite.system.units import show_several

NAMES = ("", "now")


def measured_page(measurement: Measurement, metrics: Iterable[Metric]) -> Document:
    """All that was measured, without a verdict; or why it was not."""
    known = in_order(measurement, metrics)
    failure, launches = measurement.failure, show_several(len(measurement.launches), "launch", "launches")
    rows: list[Sequence[str | PageEntry]] = []
    for name, metric in known.items():
        reading, other = measurement.readings[name], measurement.unrepeated.get(name)
        shown = [] if not measurement.unrepeated else ["" if other is None else metric.show(other)]
        rows.append([metric.title, metric.show(reading.value), *shown])
    head = ["metric", "measured", *(["another launch"] if measurement.unrepeated else [])]
    numbers = Table(head=head, rows=rows, numbers=frozenset((1, 2)))
    details = [
        Section(heading=metric.title, tables=[_parts(measurement, metric)], folded=True)
        for name, metric in known.items()
        if name in DETAILED and measurement.readings[name].parts
    ]
    found = [f"{said_of(one)}." for one in standing_out(measurement)]
    libraries = ", ".join(f"{name} {version}" for name, version in measurement.versions.items())
    active = ", ".join(f"{name} {fact}" for name, fact in measurement.engine.items())
    section = Section(
        heading=measurement.cell,
        charts=Evidence(None, measurement, NAMES).charts(known),
        tables=[numbers] if rows else [],
        sentences=[f"Not counted: {name}: {why}." for name, why in measurement.uncounted.items()],
        text=failure.tail if failure else "",
        inside=details,
        kind=kind_of(measurement),
    )
    return Document(
        title="Training script",
        verdict=failure.message if failure else " ".join([f"{measurement.cell} was measured in {launches}.", *found]),
        facts=[fact for fact in (libraries, f"Active: {active}" if active else "") if fact],
        tone="red" if failure else "",
        sections=[section],
    )


def _parts(measurement: Measurement, metric: Metric) -> Table:
    """The parts of a number, and the largest of what they consist of."""
    reading = measurement.readings[metric.name]
    parts = {part_name(part): size for part, size in reading.parts.items()}
    rows = [[name, metric.show(size)] for name, size in largest(parts, len(parts))]
    rows += [[name, metric.show(size)] for name, size in largest(reading.suspects, len(reading.suspects))]
    return Table(head=["part, then operators", metric.title], rows=rows, numbers=frozenset((1,)))
