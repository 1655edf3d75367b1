"""The files that a rank opens for reading until its steps begin: the data of the user's model, engine and techniques.

Until then Python's functions that open files are exchanged, so nothing of it is left in a step. An audit hook would
stay for ever: it costs 0.4 µs for each of the thousand audited calls (``id``, for example) in a step of ZeRO-3. What is
opened during the steps, or by C++ and Rust code, is not seen; rank/script/read_files.py sees that of a script.
"""

import builtins
import contextlib
import functools
import io
import os
from collections.abc import Callable, Iterator
from typing import Any

from perfsuite.rank.loaded import is_installed

WRITES = frozenset("wax+")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Opened:
    """What was opened while one of its ``watching`` contexts was open."""

    def __init__(self) -> None:
        self._read: set[str] = set()
        self._written: set[str] = set()

    @property
    def files(self) -> list[str]:
        """The files that were only read, without those of installed packages."""
        return sorted(file for file in self._read - self._written if not is_installed(file))

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Inside, files that this process opens are noted."""
        modules: list[Any] = [builtins, io, os]
        with contextlib.ExitStack() as restored:
            for module in modules:
                names = ("path", "flags") if module is os else ("file", "mode")
                restored.callback(setattr, module, "open", module.open)
                module.open = _Open(module.open, names, self._note)
            yield

    def _note(self, file: Any, how: Any) -> None:
        if isinstance(file, str | bytes | os.PathLike):
            writes = how & WRITING if isinstance(how, int) else not WRITES.isdisjoint(how or "r")
            (self._written if writes else self._read).add(os.path.abspath(os.fsdecode(file)))


class _Open:
    """In place of a function that opens a file, whose first arguments have these names. It is no function itself: as an
    attribute of a class, that would get the object as its first argument, which one of Python's own does not.
    """

    def __init__(self, real: Callable[..., Any], names: tuple[str, str], note: Callable[[Any, Any], None]) -> None:
        functools.update_wrapper(self, real)
        self._real, self._names, self._note = real, names, note

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        with contextlib.suppress(Exception):  # whatever is wrong with them, the real function says
            given = dict(zip(self._names, arguments, strict=False)) | named
            self._note(*map(given.get, self._names))
        return self._real(*arguments, **named)
