"""How a process of a measured command starts: its imports, and what it does until it has made two iterations.

Watched from the start of Python on, so nothing but the standard library is imported here. ``import`` statements are
timed by Python's own function for them until the first iteration begins. Their memory is counted, too, until that
iteration ends: it is no script's, a script may import in any order, and libraries import more when they are used.
"""

from __future__ import annotations

import builtins
import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from perfsuite.system.clocks import monotonic

ENDS = ("first_step", "second_step")
BEGINS = ("data", "forward")  # the phases with which the first iteration begins
STANDARD = f"{os.path.dirname(os.__file__)}/"  # the standard library, and below it mostly the installed packages
PACKAGES = ("/site-packages/", "/dist-packages/")
# what Python's function for imports takes: name, globals, locals, names, level
STATEMENT: tuple[Any, ...] = ("", None, None, (), 0)


class Started:
    """This process, from its first line on. ``seconds`` are those of phases, by the clock."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self._age, self.whole = _age(), 0.0
        self.seconds = {"python": self._age, "import": 0.0, "other": 0.0}
        self.modules: list[str] = []
        self._begun = monotonic()
        self._thread = threading.get_ident()
        self._inside = False
        self._own: set[str] = set()  # modules that perfsuite has imported
        self._step = 0.0  # when the current one began
        self.import_bytes = 0  # that imports of libraries have allocated, since they are counted
        self._allocated: Callable[[], int] = int
        self._importers: list[int] = []  # bytes when each import that runs now and is counted began
        self._plain = builtins.__import__
        builtins.__import__ = self._importing

    def count_bytes(self, allocated: Callable[[], int]) -> None:
        """Count what imports allocate from now on, also those that run."""
        self._allocated, self.import_bytes = allocated, 0
        self._importers = [allocated()] * len(self._importers)

    def _importing(self, *arguments: Any, **named: Any) -> Any:
        if threading.get_ident() != self._thread:
            return self._plain(*arguments, **named)
        if named or not self._may_load(arguments):
            return self._timed(*arguments, **named)
        before = self.import_bytes
        self._importers.append(self._allocated())
        try:
            return self._timed(*arguments, **named)
        finally:
            begun = self._importers.pop()
            if _is_librarys(sys.modules.get(str(arguments[0]).partition(".")[0])):  # else its own imports were counted
                self.import_bytes = before + self._allocated() - begun

    def _may_load(self, arguments: tuple[Any, ...]) -> bool:
        """Whether this loads what nothing has imported yet, and is not a library's part of an import that is counted.
        ``arguments`` are those of an import statement.
        """
        name, importer, _, names, level = (*arguments, *STATEMENT[len(arguments) :])
        file = (importer or {}).get("__file__")
        if level or (self._importers and isinstance(file, str) and _is_installed(file)):
            return False
        module = sys.modules.get(name)
        return module is None or not all(one in getattr(module, "__dict__", {}) for one in names or ())

    def _timed(self, *arguments: Any, **named: Any) -> Any:
        if self._inside or self._step:
            return self._plain(*arguments, **named)
        self._inside = True
        begun = monotonic()
        try:
            return self._plain(*arguments, **named)
        finally:
            self._inside = False
            self.seconds["import"] += monotonic() - begun

    @contextlib.contextmanager
    def ours(self) -> Iterator[None]:
        """Inside, perfsuite attaches: its time and its modules are not the script's."""
        begun, before = monotonic(), set(sys.modules)
        yield
        self._own |= sys.modules.keys() - before
        self.seconds["other"] += monotonic() - begun
        if self._inside:
            self.seconds["import"] -= monotonic() - begun

    def listen(self, phase: str) -> None:
        """Called as a phase of an iteration begins; "batch" ends one."""
        now = monotonic()
        if phase in BEGINS and not self._step:
            known = self.seconds["import"] + self.seconds["other"]
            self.seconds["setup"], self._step = now - self._begun - known, now
        if phase != "batch" or not self._step or ENDS[-1] in self.seconds:
            return
        if builtins.__import__ == self._importing:
            builtins.__import__ = self._plain
        end = next(name for name in ENDS if name not in self.seconds)
        self.seconds[end], self._step = now - self._step, now
        self.whole = self._age + now - self._begun
        if end == ENDS[-1]:
            self.modules = sorted(sys.modules.keys() - self._own)

    def age(self) -> float:
        """Seconds since the process was started."""
        return self._age + monotonic() - self._begun

    @property
    def is_done(self) -> bool:
        """Whether all phases are known, of this process and not of the one that it was forked from."""
        return ENDS[-1] in self.seconds and self.process == os.getpid()


def _is_librarys(module: Any) -> bool:
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and _is_installed(file)


def _is_installed(file: str) -> bool:
    return file.startswith(STANDARD) or any(folder in file for folder in PACKAGES)


def _age() -> float:
    """Seconds since this process was started, to a hundredth (proc(5), starttime)."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
