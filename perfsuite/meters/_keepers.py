"""Who keeps what grows: the lines of Python at which each step of a long run allocates memory or opens a file for good.

Two windows of steps, the second twice as long: what both leave alike is alive in every step, and what the second leaves
more of is kept.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from perfsuite.rank.session import Session
from perfsuite.records.step_kinds import NAMED_STEPS
from perfsuite.records.suspects import fold

SHORT = NAMED_STEPS // 3
MOST_FRAMES = 60
NOT_INSTALLED = "kept: memray is not installed, which names the lines"
OPENS = ("open", "socket.__new__")  # audit events of Python that make a file descriptor
Place = tuple[int, str]  # memray's number of the function that allocates, and the line of Python
_opened: list[tuple[str, str]] | None = None  # target and line, while files are watched; an audit hook is for ever
_hooked = False


class Keepers:
    """Watches the steps of kind "named", once ``begin`` is called."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.begun = False
        self.steps = 0
        self.left: list[Counter[Place]] = []  # allocations of each window that are still there
        self.sizes: list[Counter[Place]] = []
        self.files: set[str] = set()
        self.window = contextlib.ExitStack()
        self.path: Path | None = None

    def begin(self) -> None:
        """Watch from the next step on."""
        global _opened, _hooked
        self.begun = True
        self.files = _descriptors()
        _opened = []
        if not _hooked:
            _hooked = True
            sys.addaudithook(_audit)

    def begin_step(self) -> None:
        """A step begins."""
        if self.begun and self.steps in (0, SHORT):
            self._open(self.steps)

    def stepped(self) -> None:
        """It has ended. What meters allocate after the last one is nobody's."""
        self.steps += self.begun
        if self.steps == NAMED_STEPS:
            self._close()

    def end(self) -> dict[str, dict[str, int]]:
        """Bytes per step by place, of memory, and files."""
        global _opened
        if not self.begun:
            return {}
        opened, _opened = _opened or [], None
        return {"memory": self._memory(), "files": self._files(opened)}

    def _open(self, number: int) -> None:
        self._close()
        try:
            from memray import FileDestination, Tracker
        except ImportError:
            return
        assert self.session.scratch
        self.session.scratch.mkdir(exist_ok=True)
        self.path = self.session.scratch / f"rank{self.session.rank}.{number}.memray"
        gc.collect()  # else a window begins with Python's freed floats, and some that are kept were allocated before
        target = FileDestination(self.path, overwrite=True, compress_on_exit=False)
        self.window.enter_context(Tracker(destination=target, trace_python_allocators=True))

    def _close(self) -> None:
        if self.path is None:
            return
        gc.collect()  # it empties Python's lists of freed tuples too, which look as if they were kept
        self.window.close()
        from memray import FileReader

        left: Counter[Place] = Counter()
        sizes: Counter[Place] = Counter()
        with FileReader(self.path) as reader:
            for record in reader.get_leaked_allocation_records(merge_threads=True):
                place = record.allocator, _place(record.stack_trace(MOST_FRAMES))
                left[place] += record.n_allocations
                sizes[place] += record.size
        self.path.unlink()
        self.path = None
        self.left.append(left)
        self.sizes.append(sizes)

    def _memory(self) -> dict[str, int]:
        if not self.left:
            return {NOT_INSTALLED: 1}
        (few, some), (many, more) = zip(self.left, self.sizes, strict=True)
        steps = NAMED_STEPS - 2 * SHORT  # by which the second window is longer
        grown: Counter[str] = Counter()
        for place, number in many.items():
            kept = number - few[place]
            # As many of each step. The list that keeps them may grow at the same line, in one of the windows.
            if kept >= steps - 1 and abs(kept - round(kept / steps) * steps) <= 1:
                grown[place[1]] += (more[place] - some[place]) // steps
        return fold({f"kept: {name}": size for name, size in grown.items() if size > 0})

    def _files(self, opened: list[tuple[str, str]]) -> dict[str, int]:
        """Those that have come, by the line that opened them, or by what they are."""
        lines = dict(opened)
        other = next((line for target, line in reversed(opened) if not target), "")
        new = _descriptors() - self.files
        places = Counter(
            lines.get(os.path.realpath(target)) or (other if target.startswith("socket:") and other else _kind(target))
            for target in (one.partition(" ")[2] for one in new)
        )
        return fold(
            {f"kept: {place}": number // NAMED_STEPS for place, number in places.items() if number >= NAMED_STEPS}
        )


def _place(stack: list[tuple[str, str, int]]) -> str:
    """``function @ file:line``, of the innermost frame of Python; nothing of Python runs in a library's own thread."""
    for function, file, line in stack:
        return f"{function} @ {_short(file)}:{line}"
    return "a thread without Python"


def _short(file: str) -> str:
    """A file of the user's from where he stands, or the end of a path: the file and its folder."""
    path, here = Path(file), Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else "/".join(path.parts[-2:])


def _descriptors() -> set[str]:
    """Every open file descriptor with its target."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # that of this listing
            found.add(f"{name} {os.readlink(f'/proc/self/fd/{name}')}")
    return found


def _kind(target: str) -> str:
    """``socket``, ``pipe``, or a file's path."""
    return target.partition(":")[0] if ":[" in target else target


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _opened is None or event not in OPENS:
        return
    frame = next(_callers(sys._getframe(1)), None)
    if frame is None:
        return
    target = arguments[0] if event == "open" else ""
    with contextlib.suppress(Exception):  # an audit hook must raise nothing
        path = os.path.realpath(os.fspath(target)) if isinstance(target, str | bytes | os.PathLike) and target else ""
        line = f"{frame.f_code.co_name} @ {_short(frame.f_code.co_filename)}:{frame.f_lineno}"
        _opened.append((os.fsdecode(path), line))


def _callers(frame: Any) -> Iterator[Any]:
    """The frames around a call, but for those of the standard library, which opens files for others."""
    library = os.path.dirname(os.__file__)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith((library, "<frozen")) or "site-packages" in file:
            yield frame
        frame = frame.f_back
