"""The user's lines at which each step allocates Python's memory for good, by some later steps under tracemalloc.

tracemalloc slows a step, so it watches only if something has grown. What is alive at the end, as often as there were
steps, is kept.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from perfsuite.rank.users_lines import PACKAGE, UsersLines, is_ours
from perfsuite.records.sample import Reading
from perfsuite.records.suspects import LINE

GROWN = ("leaked_objects", "host_grown_bytes", "open_files_left")
FIRST, STEPS = 1, 6  # the later step after which it begins, and for how many
FRAMES = 25


class KeptLines:
    """Watches the later steps if a reading says that something has grown."""

    def __init__(self, readings: Mapping[str, Reading]) -> None:
        self._grows = any(name in readings and readings[name].value for name in GROWN)
        self._users = UsersLines()
        self._lines: dict[str, int] = {}

    def stepped(self, step: int) -> None:
        """That later step is done."""
        if self._grows and step == FIRST and not tracemalloc.is_tracing():
            tracemalloc.start(FRAMES)
        elif step == FIRST + STEPS and self._grows and tracemalloc.is_tracing():
            gc.collect()
            self._lines = self._kept(tracemalloc.take_snapshot())
            tracemalloc.stop()

    def _kept(self, snapshot: tracemalloc.Snapshot) -> dict[str, int]:
        """Bytes by line, of those lines that have left something in all steps but one."""
        sizes, numbers = Counter[str](), Counter[str]()
        for statistic in snapshot.statistics("traceback"):
            line = self._line(statistic.traceback)
            sizes[line] += statistic.size
            numbers[line] += statistic.count
        return {line: size // STEPS for line, size in sizes.items() if line and numbers[line] >= STEPS - 1}

    def _line(self, traceback: Any) -> str:
        """The user's innermost line; empty if perfsuite itself has allocated, inside of a call of his."""
        innermost, *_ = frames = list(reversed(traceback))
        for frame in frames:
            if is_ours(frame.filename) or innermost.filename.startswith(PACKAGE):
                return ""
            if line := self._users.named(frame.filename, frame.lineno, ""):
                return line
        return ""

    def readings(self, readings: Mapping[str, Reading]) -> dict[str, Reading]:
        """Those that still grow, with the lines."""
        return {
            name: msgspec.structs.replace(readings[name], lines={LINE: self._lines})
            for name in GROWN
            if self._lines and name in readings and readings[name].value
        }
