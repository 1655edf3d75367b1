"""What a script leaves open: file descriptors that each step adds, and the processes at the end.

Both are of a whole training: a descriptor of each step ends it when the process may have no more, and a process that
each epoch leaves takes memory and cores from the others. Later steps count if each of their last two blocks adds as
many, since an epoch may end in one of them.
"""

import functools
import itertools
import operator
import os
from collections import Counter
from collections.abc import Mapping

from perfsuite.catalog.definitions import Metric
from perfsuite.rank.meter import Meter
from perfsuite.rank.script.boot import started_with
from perfsuite.rank.script.family import running, with_children
from perfsuite.rank.trainer import StepOutcome, Trainer
from perfsuite.records.sample import Reading
from perfsuite.records.step_kinds import StepKind
from perfsuite.system.units import WHOLE

BLOCK = 10  # later steps between two looks
LAST = 2  # blocks, each of which has what counts
PROCESSES = "processes"  # the part of suspects

FOLDER = "PERFSUITE_SCRIPT"  # the variable that all processes of a script have


class LeftOpen(Meter):
    """Reads the kernel's lists, before the first measured step and at the end."""

    processes = ("script",)

    def prepared(self, trainer: Trainer) -> None:
        super().prepared(trainer)
        self.before, self.steps = descriptors(), 0
        self.later_files: list[Counter[str]] = []
        self.later_processes: list[Counter[str]] = []

    def stepped(self, kind: StepKind, outcome: StepOutcome) -> None:
        self.steps += 1

    def readings(self) -> dict[str, Reading]:
        # Tensors on their way from a worker have descriptors as well, and how many there are is chance.
        grown = (descriptors() - self.before).items()
        left = {kind: number // self.steps for kind, number in grown if number >= self.steps}
        there = self._there()
        return {
            "open_files_left": Reading(value=sum(left.values()), parts=left),
            "processes_at_end": Reading(value=there.total(), suspects=dict(there)),
        }

    def _there(self) -> Counter[str]:
        """The processes that are there, as suspects; only the first rank looks. Names depend on the machine."""
        there = processes() if self.session.rank == 0 else Counter[str]()
        return Counter({f"{PROCESSES}: {name}": number for name, number in there.items()})

    def later(self, step: int, outcome: StepOutcome, seconds: float) -> None:
        if step % BLOCK == 0:
            self.later_files.append(descriptors())
            self.later_processes.append(self._there())

    def later_readings(self, readings: Mapping[str, Reading]) -> dict[str, Reading]:
        if len(self.later_files) <= LAST:
            return {}
        files, before = self.later_files[-LAST - 1 :], readings["open_files_left"].parts
        grown = {kind: min(b[kind] - a[kind] for a, b in itertools.pairwise(files)) // BLOCK for kind in files[-1]}
        left = {kind: max(before.get(kind, 0), number) for kind, number in (before | grown).items()}
        left = {kind: number for kind, number in left.items() if number > 0}
        # Workers of an evaluation come and go, and those of the data are others in each epoch.
        first, *_ = looks = self.later_processes
        more = functools.reduce(operator.and_, looks[-LAST:]) - first
        stayed = functools.reduce(operator.and_, looks, Counter(readings["processes_at_end"].suspects))
        there = stayed + more
        return {
            "open_files_left": Reading(value=sum(left.values()), parts=left),
            "processes_at_end": Reading(value=there.total(), suspects=dict(there)),
        }


def descriptors() -> Counter[str]:
    """The open descriptors of this process by what they are: a file, or what the kernel names in brackets."""
    found: Counter[str] = Counter()
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:  # that of this listing
            continue
        found["file" if target.startswith("/") else target.partition(":")[0]] += 1
    return found


def processes() -> Counter[str]:
    """The processes of the script on this machine, by their programs: those that have its variable, and their children,
    which may have dropped it. Ended ones that nobody has waited for count too.
    """
    mine, known = f"{FOLDER}={started_with.get(FOLDER, '')}".encode(), running()
    own = with_children([pid for pid, one in known.items() if mine in one.variables], known)
    return Counter(known[pid].name for pid in own)


METER = LeftOpen
METRICS = (
    Metric("open_files_left", "open files left/step", WHOLE, hold="exact", optional=True),
    Metric("processes_at_end", "processes at the end", WHOLE, fold="sum", hold="exact", optional=True),
)
