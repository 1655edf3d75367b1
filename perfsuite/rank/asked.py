"""The environment variables that the user's own Python code asks this process for.

A script may be slower since a variable of its own is set, of which no library knows. Each name is recorded with a short
digest of its value when the process began, and never with the value. Not recorded are names that other records cover,
and those of catalog/surroundings.py.

Code can also read all variables: by a loop, or into a copy, which may be for another process. Then those count that the
user's code names in a text: the name, or its beginning or end with an underscore. After a loop, that may be in lower
case. So another machine's variables are none of a script's.

Imports nothing but the standard library: a measured script is watched from its first line on.
"""

from __future__ import annotations

import ast
import contextlib
import dis
import functools
import hashlib
import os
import sys
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Any

from perfsuite.rank.loaded import is_installed, users_files
from perfsuite.records.asked_for import ALL

DIGITS = 8
PACKAGE = f"{os.path.dirname(os.path.dirname(os.path.abspath(__file__)))}{os.sep}"
STANDARD = f"{os.path.dirname(os.path.abspath(os.__file__))}{os.sep}"
LOOPS = ("GET_ITER", "FOR_ITER", "BINARY_SUBSCR")  # instructions that take one after the other; a copy is a call
SHORTEST = 3  # letters of a beginning, without its underscore


class Whose(Enum):
    """Whose code a file has."""

    STANDARD = "the standard library's"
    USERS = "the user's"
    OTHERS = "a package's"


class AskedInputs:
    """What was asked for. ``begun_with`` are the variables with which the process began."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.begun_with = dict(os.environ)
        self.reads_all = self.loops = False  # whether the user's code has read all variables, and in a loop
        self.given: dict[Any, Any] = {}  # the names that readings of all have given: always the same objects

    def digests(self) -> dict[str, str]:
        """By name; empty for a variable that was not set."""
        names = self.names | (self._read_with_all() if self.reads_all else set())
        digests = {name: self._digest(name) for name in sorted(names) if is_recorded(name, self.begun_with)}
        return digests | ({ALL: ""} if self.reads_all else {})

    def _read_with_all(self) -> set[str]:
        """The variables that were set, and that a text of the user's code names."""
        from perfsuite.catalog.surroundings import OF_MACHINES

        texts = set(_texts(users_files()))
        short = {text for text in texts if len(text.strip("_")) >= SHORTEST}
        beginnings = tuple(text for text in short if text.endswith("_"))
        ends = tuple(text for text in short if text.startswith("_"))
        return {
            name
            for name in self.begun_with.keys() - OF_MACHINES
            if name in texts
            or (self.loops and (name.lower() in texts or name.startswith(beginnings) or name.endswith(ends)))
        }

    def _digest(self, name: str) -> str:
        value = self.begun_with.get(name)
        if value is None:
            return ""
        root = _repository(self.begun_with)
        value = value.removeprefix(f"{root}{os.sep}") if root else value
        return hashlib.sha256(f"{name}={value}".encode(errors="surrogateescape")).hexdigest()[:DIGITS]

    def note(self, name: Any, frame: Any) -> None:
        """The frame looks up a variable. One that a reading of all has just given is no question of its own."""
        if self.given.get(name) is name:
            self.note_all(frame)
        elif users_caller(frame) is not None:
            self.names.add(os.fsdecode(name))

    def note_all(self, frame: Any) -> None:
        """The frame reads all variables, or the next one of them."""
        if (caller := users_caller(frame)) is not None:
            self.reads_all = True
            instruction = caller.f_code.co_code[caller.f_lasti]
            self.loops |= dis.opname[instruction].startswith(LOOPS)


def users_caller(frame: Any) -> Any:
    """The nearest frame outside of the standard library, if it is of the user's own code."""
    while frame is not None and (whose := _whose_is(frame.f_code.co_filename)) == Whose.STANDARD:
        frame = frame.f_back
    return frame if frame is not None and whose == Whose.USERS else None


@functools.cache
def _whose_is(file: str) -> Whose:
    if file.startswith("<") or (file.startswith(STANDARD) and "-packages" not in file):
        return Whose.STANDARD
    return Whose.OTHERS if is_installed(file) or file.startswith(PACKAGE) else Whose.USERS


def is_recorded(name: str, variables: dict[str, str]) -> bool:
    """Whether the variable may say something that no other record has."""
    from perfsuite.catalog.surroundings import may_count
    from perfsuite.catalog.tuning import is_tuning

    ours = name in variables.get("PERFSUITE_SETS", "").split()
    return not is_tuning(name) and not ours and may_count(name, variables.get(name), _repository(variables))


def _repository(variables: dict[str, str]) -> str:
    """The user's, of which a script runs in a copy."""
    return variables.get("PERFSUITE_COPY", "").partition(os.pathsep)[2]


def _texts(files: Iterable[str]) -> Iterator[str]:
    """The texts in these files that may be a name or a part of one."""
    for file in files:
        with contextlib.suppress(OSError, SyntaxError, ValueError, RecursionError), open(file, "rb") as source:
            for node in ast.walk(ast.parse(source.read())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
                    yield node.value


_here: AskedInputs | None = None


def watch() -> AskedInputs:
    """Note from now on what this process is asked for, once."""
    global _here
    if _here is not None:
        return _here
    asked = _here = AskedInputs()
    is_installed(__file__)  # this asks sysconfig once, which since Python 3.13 reads all variables itself
    kind: Any = type(os.environ)
    look_up, iterate = kind.__getitem__, kind.__iter__

    def getitem(self: Any, name: Any) -> Any:
        if isinstance(name, str if self is os.environ else bytes) and name not in asked.names:
            asked.note(name, sys._getframe(1))
        return look_up(self, name)

    def each(self: Any) -> Iterator[Any]:
        asked.note_all(sys._getframe(1))
        return iter([asked.given.setdefault(name, name) for name in iterate(self)])

    kind.__getitem__, kind.__iter__ = getitem, each
    return asked
