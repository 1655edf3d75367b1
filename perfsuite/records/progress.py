"""The few bytes with which a rank reports its progress to the parent: one small mapped file per rank.

Writing needs no system call, so it can be done between the phases of a timed step.
"""

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

_LAYOUT = struct.Struct("=qqqq")  # marks so far, step, phase, waits so far
PHASES = (
    "start", "import", "join", "build", "prepare", "compile", "turn", "batch", "data", "other", "forward", "backward",
    "optimizer", "end", "evaluation", "check", "result",
)  # fmt: skip


@dataclass(frozen=True)
class Progress:
    """The progress of a rank. ``marks`` only grows: of two ranks that hang, the one with fewer marks blocks the other.
    So ``waits`` are counted separately: how often a rank reported that it waits, and does not hang, depends on the
    clock.
    """

    marks: int
    step: int
    phase: str
    waits: int = 0

    @property
    def in_step(self) -> bool:
        """Whether the next mark is due soon: not before the first step, nor while the cell is built again to check its
        update.
        """
        return self.step > 0 and self.phase != "check"


NOT_STARTED = Progress(0, 0, PHASES[0])


class ProgressWriter:
    """The rank's side."""

    def __init__(self, path: Path) -> None:
        with path.open("wb") as file:
            file.write(bytes(_LAYOUT.size))  # not truncate(): on a full disk this fails, and a write to a map kills
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _LAYOUT.size)
        self._marks = self._step = self._waits = 0
        self.phase = PHASES[0]

    @property
    def where(self) -> str:
        """``in forward of step 3``, ``in step 3`` of what is no phase, or ``in prepare`` before the first step."""
        of_step = f"step {self._step}" if self.phase == "other" else f"{self.phase} of step {self._step}"
        return f"in {of_step if self._step else self.phase}"

    def mark(self, phase: str) -> None:
        """A phase begins; "batch" begins a step."""
        self._marks += 1
        self._step += phase == "batch"
        self._write(phase)

    def wait(self, phase: str) -> None:
        """Still waiting, between two marks, for something outside this cell."""
        self._waits += 1
        self._write(phase)

    def _write(self, phase: str) -> None:
        self.phase = phase
        _LAYOUT.pack_into(self._map, 0, self._marks, self._step, PHASES.index(phase), self._waits)


def read_progress(path: Path) -> Progress:
    """The parent's side. A rank that has not started is at mark 0."""
    try:
        marks, step, phase, waits = _LAYOUT.unpack(path.read_bytes())
    except (OSError, struct.error):
        return NOT_STARTED
    return Progress(marks, step, PHASES[phase], waits)
