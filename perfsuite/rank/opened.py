"""The files that a rank opens for reading until its steps begin: the data of the user's model, engine and techniques.
And those that it looks for: their presence alone may decide what a step does.

Until then Python's functions that open, stat and list files are exchanged, so nothing of it is left in a step. An audit
hook would stay for ever: it costs 0.4 µs for each of the thousand audited calls (``id``, for example) in a step of
ZeRO-3. What is opened during the steps, or by C++ and Rust code, is not seen; rank/script/read_files.py sees that of a
script.
"""

import builtins
import contextlib
import functools
import glob
import io
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from perfsuite.rank.asked import users_caller
from perfsuite.rank.loaded import is_installed

WRITES = frozenset("wax+")
MOST_LOOKED_FOR = 2_000  # a data set may have millions of files, each of which is looked for
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Opened:
    """What was opened while one of its ``watching`` contexts was open."""

    def __init__(self) -> None:
        self._read: set[str] = set()
        self._written: set[str] = set()
        self._looked_for: set[str] = set()

    @property
    def files(self) -> list[str]:
        """The files that were only read, without those of installed packages."""
        return sorted(file for file in self._read - self._written if not is_installed(file))

    @property
    def looked_for(self) -> list[str]:
        """The other files that the user's code asked for, whether they are there or not, and the folders that it
        listed, with a slash.
        """
        known = self._read | self._written
        return sorted(place for place in self._looked_for - known if not is_installed(place))

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Inside, files that this process opens or looks for are noted."""
        modules: list[Any] = [builtins, io, os]
        with contextlib.ExitStack() as restored:
            for module in modules:
                names = ("path", "flags") if module is os else ("file", "mode")
                restored.callback(setattr, module, "open", module.open)
                module.open = _Noted(module.open, names, self._note)
            scan = os.scandir
            for name in ("stat", "access", "listdir", "scandir"):
                note = self._note_look if name in ("stat", "access") else self._note_list
                restored.callback(setattr, os, name, getattr(os, name))
                setattr(os, name, _Noted(getattr(os, name), ("path", "dir_fd"), note))
            pathlibs: Any = getattr(glob, "_StringGlobber", None)
            if getattr(pathlibs, "scandir", None) is scan:  # Python 3.13 has it at hand for Path.glob
                restored.callback(setattr, pathlibs, "scandir", vars(pathlibs)["scandir"])
                pathlibs.scandir = os.scandir
            yield

    def _note(self, file: Any, how: Any) -> None:
        if isinstance(file, str | bytes | os.PathLike):
            writes = how & WRITING if isinstance(how, int) else not WRITES.isdisjoint(how or "r")
            (self._written if writes else self._read).add(os.path.abspath(os.fsdecode(file)))

    def _note_look(self, place: Any, _: Any, end: str = "") -> None:
        """What the user's code looks for. Libraries and perfsuite look for much that no step depends on."""
        is_path = isinstance(place, str | bytes | os.PathLike) and len(self._looked_for) < MOST_LOOKED_FOR
        if is_path and users_caller(_outside()):
            self._looked_for.add(os.path.abspath(os.fsdecode(place)) + end)

    def _note_list(self, place: Any, _: Any) -> None:
        self._note_look("." if place is None else place, None, os.sep)


def _outside() -> Any:
    """The frame that called a function of files."""
    frame: Any = sys._getframe()
    while frame.f_code.co_filename == __file__:
        frame = frame.f_back
    return frame


class _Noted:
    """In place of a function of files, whose first arguments have these names. It is no function itself: as an
    attribute of a class, that would get the object as its first argument, which one of Python's own does not. It equals
    the real one: Python asks whether that is in sets such as ``os.supports_follow_symlinks``.
    """

    def __init__(self, real: Callable[..., Any], names: tuple[str, str], note: Callable[[Any, Any], None]) -> None:
        functools.update_wrapper(self, real)
        self._real, self._names, self._note = real, names, note

    def __eq__(self, other: object) -> bool:
        return self._real == other

    def __hash__(self) -> int:
        return hash(self._real)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        with contextlib.suppress(Exception):  # whatever is wrong with them, the real function says
            given = dict(zip(self._names, arguments, strict=False)) | named
            self._note(*map(given.get, self._names))
        return self._real(*arguments, **named)
