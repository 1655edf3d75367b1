"""What a cell leaves of its capacity, and what grew where it left nothing."""

from perfsuite.records.measurement import Measurement
from perfsuite.units import show_bytes

PEAK = "peak_memory_bytes"


def capacity_of(measurement: Measurement) -> int | None:
    """The bytes that the tensors of a rank may occupy: the cap on it, else the device's memory.

    None on a CPU without a cap: it has no memory of its own, for its ranks share the machine's with all that runs.
    """
    if measurement.capacity_bytes is not None:
        return measurement.capacity_bytes
    return None if measurement.cell.split("-")[2].startswith("cpu_") else measurement.machine.memory_bytes


def headroom_of(measurement: Measurement) -> int | None:
    """The bytes that the fullest rank's tensors leave of the capacity; below 0 what was missing, at least.

    None where there is no capacity, or nobody knows how much was missing.
    """
    capacity, failure = capacity_of(measurement), measurement.failure
    if capacity is not None and measurement.outcome == "oom":
        missing = failure.missing_bytes if failure else None
        return None if missing is None else -missing
    if capacity is None or PEAK not in measurement.readings:
        return None
    return capacity - int(measurement.readings[PEAK].value)


def say_headroom(measurement: Measurement) -> str:
    """``2.94 GiB of 24.00 GiB are left``; empty where that is not known, and out of memory, which says it by itself."""
    capacity, left = capacity_of(measurement), headroom_of(measurement)
    if capacity is None or left is None or measurement.outcome == "oom":
        return ""
    return f"{show_bytes(left)} of {show_bytes(capacity)} are left"


def most_of(parts: dict[str, int]) -> str:
    """``activations, 1.94 GiB``: the largest category."""
    name = max(parts, key=lambda name: parts[name])
    return f"{name.replace('_', ' ')}, {show_bytes(parts[name])}"


def what_grew(new: Measurement, old: Measurement) -> str:
    """Out of memory where the baseline fits: the category that has grown most beyond the baseline's peak, by what was
    alive and asked for when memory ran out; empty where that is not known.
    """
    parts = new.failure.parts if new.failure else {}
    before = old.readings[PEAK].parts if PEAK in old.readings else {}
    if not parts or not before:
        return ""
    moves = {name: parts.get(name, 0) - before.get(name, 0) for name in sorted(parts | before)}
    name = max(moves, key=lambda name: moves[name])
    if moves[name] <= 0:
        return f"no category grew; most of it {most_of(parts)}"
    return f"{name.replace('_', ' ')} +{show_bytes(moves[name])}"
