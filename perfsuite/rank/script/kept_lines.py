"""The user's lines at which each step allocates Python's memory for good, by some later steps under tracemalloc.

tracemalloc slows a step, so it watches only if something has grown. A line that has more alive at the end than after
the first step, by as many as there were steps, keeps them. What a line allocates anew in each step, in the place of
what it had, is alive at both times.
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

BYTES = "host_grown_bytes"
GROWN = ("leaked_objects", BYTES, "open_files_left")
FIRST = 1  # the later step after which it may begin
FEWEST, STEPS = 3, 5  # steps from the end of the next one on, if the script ends, and otherwise
FRAMES = 25


class KeptLines:
    """Watches some later steps if a reading says that something has grown, and some if a meter says so ``late``."""

    def __init__(self, readings: Mapping[str, Reading]) -> None:
        self._grows = any(name in readings and readings[name].value for name in GROWN)
        self._has_looked_late = False
        self._begun: int | None = None  # the later step after which tracemalloc watches, while it does
        self._steps = 0  # since the first of them has ended
        self._users = UsersLines()
        self._first: Counter[str] = Counter()  # what each line has alive after the first step
        self._first_sizes: Counter[str] = Counter()
        self._numbers: dict[str, int] = {}  # blocks a step, by line
        self._sizes: dict[str, int] = {}  # and bytes

    def stepped(self, step: int, late: bool) -> None:
        """That later step is done."""
        if self._begun is None:
            late = late and not self._has_looked_late
            if (self._grows or late) and step >= FIRST and not tracemalloc.is_tracing():
                tracemalloc.start(FRAMES)
                self._begun, self._steps = step, 0
                self._grows, self._has_looked_late = False, self._has_looked_late or late
        elif not tracemalloc.is_tracing():  # the script has stopped it
            self._begun = None
        elif step == self._begun + 1:
            self._first, self._first_sizes = self._alive()
        else:
            self._steps = step - self._begun - 1
            if self._steps == STEPS:
                self._end()

    def _end(self) -> None:
        """Of those lines that have left something in all steps but one, that of most bytes first: what watches a step
        keeps a number of each, too.
        """
        (numbers, sizes), steps = self._alive(), self._steps
        tracemalloc.stop()
        self._begun = None
        grown = [line for line in numbers if line and numbers[line] - self._first[line] >= steps - 1]
        grown.sort(key=lambda line: self._first_sizes[line] - sizes[line])
        if grown:  # a leak from the first step on is in both looks
            self._numbers = {line: max(1, (numbers[line] - self._first[line]) // steps) for line in grown}
            self._sizes = {line: max(0, sizes[line] - self._first_sizes[line]) // steps for line in grown}

    def _alive(self) -> tuple[Counter[str], Counter[str]]:
        """How many blocks each line has allocated that are alive, and how many bytes."""
        gc.collect()
        numbers, sizes = Counter[str](), Counter[str]()
        for statistic in tracemalloc.take_snapshot().statistics("traceback"):
            line = self._line(statistic.traceback)
            numbers[line] += statistic.count
            sizes[line] += statistic.size
        return numbers, sizes

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
        if self._begun is not None and self._steps >= FEWEST and tracemalloc.is_tracing():
            self._end()
        return {
            name: msgspec.structs.replace(readings[name], lines={LINE: self._sizes if name == BYTES else self._numbers})
            for name in GROWN
            if self._numbers and name in readings and readings[name].value
        }
