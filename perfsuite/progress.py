"""The few bytes by which a rank says where it is, and the parent sees that it moves: one small mapped file per rank.

Writing costs no system call, so it may stand between the phases of a timed step.
"""

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

_LAYOUT = struct.Struct("=qqq")  # marks so far, step, phase
PHASES = (
    "start",
    "import",
    "join",
    "build",
    "prepare",
    "turn",
    "batch",
    "forward",
    "backward",
    "optimizer",
    "end",
    "evaluation",
    "result",
)


@dataclass(frozen=True)
class Progress:
    """Where a rank is. ``marks`` only grows: of two ranks that hang, the one with fewer marks holds up the other."""

    marks: int
    step: int
    phase: str


class ProgressWriter:
    """The rank's side."""

    def __init__(self, path: Path) -> None:
        with path.open("wb") as file:
            file.truncate(_LAYOUT.size)
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _LAYOUT.size)
        self._marks = self._step = 0
        self.phase = PHASES[0]

    @property
    def where(self) -> str:
        """``in forward of step 3``, or ``in prepare`` before the first step."""
        return f"in {self.phase} of step {self._step}" if self._step else f"in {self.phase}"

    def mark(self, phase: str) -> None:
        """A phase begins; "batch" begins a step."""
        self._marks += 1
        self.phase = phase
        self._step += phase == "batch"
        _LAYOUT.pack_into(self._map, 0, self._marks, self._step, PHASES.index(phase))


def read_progress(path: Path) -> Progress:
    """The parent's side. A rank that has not come so far is at mark 0."""
    try:
        marks, step, phase = _LAYOUT.unpack(path.read_bytes())
    except (OSError, struct.error):
        return Progress(0, 0, PHASES[0])
    return Progress(marks, step, PHASES[phase])
