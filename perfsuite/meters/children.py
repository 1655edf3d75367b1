"""Memory that the processes of a script's loaders keep of each step: a leak in a worker is in no count of its rank.

Resident bytes of a process move with the batch that it makes, and end to grow once it has seen all of its data. So only
what goes on to grow in later steps counts: the least of these blocks. Workers that an epoch ends give all of it back.
"""

import contextlib
import itertools
from collections.abc import Mapping
from pathlib import Path

from perfsuite.catalog.definitions import Metric
from perfsuite.meters._growth import BLOCK, BLOCKS, goes_on, is_asked_at
from perfsuite.rank.meter import Meter
from perfsuite.rank.session import Session
from perfsuite.rank.trainer import StepOutcome
from perfsuite.records.sample import Reading
from perfsuite.records.step_kinds import StepKind
from perfsuite.system.units import BYTES

LEAST = 2**18  # bytes per step, of all these processes


class Children(Meter):
    """Reads the kernel's counts before and after the timed steps, and after blocks of later ones."""

    processes = ("script",)

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.kind = ""
        self.counts: list[dict[int, int]] = []  # resident bytes by process, around the timed steps
        self.later_counts: list[dict[int, int]] = []
        self.steps = 0  # that were timed
        self.rate = 0

    def feed(self, kind: StepKind) -> contextlib.AbstractContextManager[object]:
        if (kind == StepKind.TIMED) != (self.kind == StepKind.TIMED):
            self.counts.append(resident_of_children())
        self.kind = kind
        return contextlib.nullcontext()

    def stepped(self, kind: StepKind, outcome: StepOutcome) -> None:
        self.steps += kind == StepKind.TIMED

    def readings(self) -> dict[str, Reading]:
        if len(self.counts) > 1:
            before, after = _totals(self.counts[:2])
            self.rate = (after - before) // self.steps
        self.has_grown = self.rate >= LEAST
        return {"worker_grown_bytes": _reading(0)} if self.counts and self.counts[0] else {}

    def later(self, step: int, outcome: StepOutcome, seconds: float) -> None:
        if self.has_grown and is_asked_at(step):
            self.later_counts.append(resident_of_children())

    def later_readings(self, readings: Mapping[str, Reading]) -> dict[str, Reading]:
        totals = _totals(self.later_counts)
        usual = self.rate // 2  # workers are some batches ahead, so few timed steps may have up to twice as many
        if len(totals) <= BLOCKS or not goes_on(totals, usual):
            return {}
        least = min(after - before for before, after in itertools.pairwise(totals)) // BLOCK
        return {"worker_grown_bytes": _reading(least)}


def _reading(value: int) -> Reading:
    """The rule compares samples, here the only one."""
    return Reading(value=value, samples=[float(value)])


def resident_of_children() -> dict[int, int]:
    """The resident bytes of what this process has started, and those in turn, without files and shared memory."""
    found: dict[int, int] = {}
    ahead = ["self"]
    while ahead:
        folder = Path("/proc", ahead.pop())
        with contextlib.suppress(OSError, ValueError):  # it has ended
            ahead += [pid for path in folder.glob("task/*/children") for pid in path.read_text().split()]
            if folder.name != "self":
                lines = (folder / "status").read_text().splitlines()
                kib = [int(line.split()[1]) for line in lines if line.startswith("RssAnon:")]
                found |= {int(folder.name): kib[0] * 1024} if kib else {}
    return found


def _totals(counts: list[dict[int, int]]) -> list[int]:
    """The sums over the processes that are in all of these counts."""
    common = set.intersection(*map(set, counts)) if counts else set[int]()
    return [sum(count[pid] for pid in common) for count in counts]


METER = Children
METRICS = (
    Metric(
        "worker_grown_bytes", "memory of workers grown/step", BYTES, hold="most", bound=0.5, slack=LEAST, optional=True
    ),
)
