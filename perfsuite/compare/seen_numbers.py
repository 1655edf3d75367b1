"""The numbers of one measurement as standing_out.py asks for them."""

from collections import Counter

from perfsuite.catalog.cell_id import CellId
from perfsuite.compare.capacity import PEAK, capacity_of
from perfsuite.records.measurement import STEP_TIME, Measurement
from perfsuite.records.sample import Reading
from perfsuite.records.suspects import LINE, line_of, seconds_by_phase

LARGE = 0.2  # of an iteration, or of the peak
WAITED = 5e-3  # seconds of a step, from which on a LARGE share counts
SAMPLED = 0.02  # seconds of samples from which on their shares count
AMPLE = 0.25  # of the memory, below which a peak troubles nobody

TRAINS = ("forward", "backward", "optimizer")


def shares(measurement: Measurement) -> dict[str, float]:
    """Of an iteration, by phase, the largest first; empty if no phase is known."""
    return _shares(seconds_by_phase(measurement.readings))


def _shares(seconds: dict[str, float]) -> dict[str, float]:
    whole = sum(seconds.values())
    return {name: part / whole for name, part in sorted(seconds.items(), key=lambda item: -item[1]) if whole and part}


class SeenNumbers:
    """The numbers of a measurement as symptoms ask for them; what is not known is 0."""

    def __init__(self, measurement: Measurement) -> None:
        self.readings = measurement.readings
        self.unrepeated = measurement.unrepeated
        self.flags = measurement.flags
        machine, ranks = measurement.machine, measurement.world_size
        here = ranks / max(1, len(machine.nodes))
        self.memory = capacity_of(measurement) or machine.memory_bytes / max(1, here)
        self.ranks_per_core = here / max(1, machine.cores) if CellId.split(measurement.cell).is_on_cpu else 0.0
        self.phases = shares(measurement)
        sampled = self.readings.get("line_seconds")
        self.sampled = _shares(sampled.phases) if sampled and sampled.value >= SAMPLED else {}

    @property
    def has_ample_memory(self) -> bool:
        """Whether the peak is known, and far from what there is."""
        return 0 < self.value(PEAK) < AMPLE * self.memory

    def value(self, metric: str) -> float:
        """The least of all launches."""
        reading = self.readings.get(metric)
        return min(reading.value, self.unrepeated.get(metric, reading.value)) if reading else 0

    def part(self, metric: str, part: str) -> int:
        """A part of a number."""
        return self.readings[metric].parts.get(part, 0) if self.value(metric) else 0

    def is_large(self, share: float, of_little: float) -> bool:
        """Whether a share of an iteration counts: a LARGE one if it takes WAITED seconds."""
        seconds = share * sum(seconds_by_phase(self.readings).values())
        return share >= (LARGE if seconds >= WAITED else of_little)

    def outside(self) -> Counter[str]:
        """The samples of other code of the loop by its line, without lines that train too: a library's loop is one."""
        if not self.sampled:
            return Counter()
        lines = self.readings["line_seconds"].lines
        train = {line for phase in TRAINS for line in lines.get(phase, {})}
        return Counter({line: size for line, size in lines.get("other", {}).items() if line not in train})

    def of_peak(self, size: float) -> float:
        """Its share of the peak."""
        return size / self.value(PEAK) if self.value(PEAK) > 0 else 0.0

    def of_step(self, metric: str) -> float:
        """The seconds of a metric by those of a step."""
        return self.value(metric) / self.value(STEP_TIME) if self.value(STEP_TIME) > 0 else 0.0

    def where(self, metric: str, prefix: str = "") -> str:
        """The user's line that most of the number comes from, or else its largest evidence."""
        reading = self.readings.get(metric, Reading(value=0))
        suspects = {name: size for name, size in reading.suspects.items() if name.startswith(prefix)}
        largest = max(suspects, key=lambda name: suspects[name], default="")
        return line_of(reading, largest or LINE) or largest.partition(": ")[2] or largest

    def line(self, *phases: str) -> str:
        """The line in which samples of these phases are most often; empty if there are none."""
        found: Counter[str] = Counter()
        for phase in phases if self.sampled else ():
            found.update(self.readings["line_seconds"].lines.get(phase, {}))
        return max(found, key=lambda line: found[line], default="")

    def sending(self) -> float:
        """The share of the time in lines outside of a step's phases that send messages themselves."""
        if not self.sampled or "communication_bytes" not in self.readings:
            return 0.0
        sends = {line for lines in self.readings["communication_bytes"].lines.values() for line in lines}
        sampled = self.readings["line_seconds"]
        inside = (sampled.lines.get(phase, {}) for phase in ("other", "update"))
        return self.share(sum(size for lines in inside for line, size in lines.items() if line in sends))

    def share(self, microseconds: float) -> float:
        """Of all samples."""
        return microseconds / 1e6 / self.readings["line_seconds"].value if self.sampled else 0.0
