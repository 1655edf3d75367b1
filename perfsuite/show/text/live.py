"""The line that is updated while a cell trains: only on a terminal, and not if pytest writes its own lines (-v)."""

import os
import sys
from collections.abc import Callable
from typing import TextIO

from perfsuite.catalog.cell import Cell
from perfsuite.records.progress import Progress

EVERY_SECONDS = 0.2


class LiveLine:
    """Writes to the controlling terminal, since pytest captures the standard streams; silent if there is none."""

    def __init__(self, steps_of: Callable[[Cell], int], ahead: Callable[[], str] = str, quiet: bool = False) -> None:
        self._steps_of, self._ahead = steps_of, ahead
        self._terminal = None if quiet else _open_terminal()
        self._shown = 0
        self._last = -1.0

    def show(self, cell: Cell, progress: list[Progress], seconds: float) -> None:
        """``3/11, about 2 min left  t5_tiny-zero3-cpu_x2  step 7/19  3.2 s``; the slowest rank's step."""
        if self._terminal is None or 0 <= seconds - self._last < EVERY_SECONDS:
            return
        self._last = seconds
        step = min(rank.step for rank in progress)
        where = f"step {step}/{self._steps_of(cell)}" if step else min(progress, key=lambda rank: rank.marks).phase
        self._replace(" " + "  ".join(filter(None, (self._ahead(), cell.id, where, f"{seconds:.1f} s"))))

    def clear(self) -> None:
        """Erase the line."""
        self._last = -1.0
        self._replace("")

    close = clear

    def _replace(self, text: str) -> None:
        if self._terminal is None:
            return
        text = text[: _columns(self._terminal) - 2]
        back = "\b" * self._shown
        blank = " " * max(0, self._shown - len(text))
        self._terminal.write(f"{back}{text}{blank}" + "\b" * len(blank))
        self._terminal.flush()
        self._shown = len(text)


def _columns(terminal: TextIO) -> int:
    try:
        return os.get_terminal_size(terminal.fileno()).columns or 80  # some terminals report 0
    except OSError:
        return 80


def _open_terminal() -> TextIO | None:
    if os.environ.get("CI") or not os.environ.get("TERM") or "PYTEST_XDIST_WORKER" in os.environ:
        return None
    try:
        terminal = open("/dev/tty", "w", encoding="utf-8")  # noqa: SIM115  it stays open as long as pytest runs
    except OSError:
        return None
    return terminal if terminal.isatty() and sys.__stderr__ is not None else None
