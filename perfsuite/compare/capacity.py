"""How much of its capacity a cell leaves free, and what grew if it leaves nothing."""

from collections.abc import Mapping

from perfsuite.catalog.cell_id import CellId
from perfsuite.records.measurement import Measurement
from perfsuite.records.reasons import NothingGrew
from perfsuite.records.verdict import Headroom, Move

PEAK, RESERVED, FREE = "peak_memory_bytes", "reserved_memory_bytes", "free_memory_bytes"


def capacity_of(measurement: Measurement) -> int | None:
    """The bytes that a rank's tensors may occupy: the cap on the cell, or else the device's memory. On an accelerator,
    what its caching allocator may take from the device for tensors.

    None on a CPU without a cap: its ranks share the machine's memory with everything that runs there.
    """
    if measurement.capacity_bytes is not None:
        return measurement.capacity_bytes
    return None if _on_cpu(measurement) else measurement.machine.memory_bytes


def _on_cpu(measurement: Measurement) -> bool:
    return CellId.split(measurement.cell).is_on_cpu


def headroom_of(measurement: Measurement) -> int | None:
    """The bytes of the capacity that the fullest rank leaves free; below 0, the least number of bytes that were
    missing. On an accelerator they are free if its allocator has not taken them from the device, nor anything else.

    None if there is no capacity, or if it is unknown how much was missing.
    """
    capacity, failure = capacity_of(measurement), measurement.failure
    if capacity is not None and measurement.outcome == "oom":
        missing = failure.missing_bytes if failure else None
        return None if missing is None else -missing
    readings = measurement.readings
    if capacity is None or PEAK not in readings:
        return None
    if _on_cpu(measurement):
        return capacity - int(readings[PEAK].value)
    free = int(readings[FREE].value) if FREE in readings else None
    if measurement.capacity_bytes is None or free is None:
        return free
    return min(free, capacity - int(readings[RESERVED].value))


def headroom(measurement: Measurement) -> Headroom | None:
    """What is left of the capacity; None if unknown, and after out of memory, which has a failure of its own."""
    capacity, left = capacity_of(measurement), headroom_of(measurement)
    if capacity is None or left is None or measurement.outcome == "oom":
        return None
    return Headroom(left_bytes=left, capacity_bytes=capacity)


def largest(parts: Mapping[str, int]) -> Move:
    """The largest category."""
    name = max(parts, key=lambda name: parts[name])
    return Move(part=name, by=parts[name])


def what_grew(new: Measurement, old: Measurement) -> tuple[list[Move], NothingGrew | None]:
    """If only the baseline fits: the category that grew most beyond the baseline's peak, from what was alive and
    requested when memory ran out. A reason with the largest one if none grew; neither if unknown.
    """
    parts = new.failure.parts if new.failure else {}
    before = old.readings[PEAK].parts if PEAK in old.readings else {}
    if not parts or not before:
        return [], None
    moves = {name: parts.get(name, 0) - before.get(name, 0) for name in sorted(parts | before)}
    name = max(moves, key=lambda name: moves[name])
    if moves[name] <= 0:
        most = largest(parts)
        return [], NothingGrew(part=most.part, part_bytes=most.by)
    return [Move(part=name, by=moves[name])], None
