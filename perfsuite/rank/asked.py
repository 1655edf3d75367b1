"""The environment variables that the user's own Python code asks this process for.

A script may be slower since a variable of its own is set, of which no library knows. Each name is recorded with a short
digest of its value when the process began, and never with the value. Not recorded are names that other records cover,
names of places, sessions, launchers and secrets, and lookups of the whole environment, such as a copy of it.

Imports nothing but the standard library: a measured script is watched from its first line on.
"""

from __future__ import annotations

import hashlib
import os
import sys
from enum import Enum
from types import CodeType
from typing import Any

from perfsuite.rank.loaded import is_installed

DIGITS = 8
PACKAGE = f"{os.path.dirname(os.path.dirname(os.path.abspath(__file__)))}{os.sep}"
STANDARD = f"{os.path.dirname(os.path.abspath(os.__file__))}{os.sep}"
ITERATES = "__iter__"  # the functions of the standard library that read every variable
OTHERS = (  # beginnings of names that say who runs where
    *("PERFSUITE_", "PYTEST_", "LC_", "XDG_", "SSH_", "CONDA", "SLURM", "PBS_", "LSB_", "OMPI_", "PMI"),
    *("GITHUB_", "CI_", "RUNNER_", "LOCAL_", "GROUP_", "ROLE_", "MASTER_", "PYTHON"),
)
NAMES = frozenset(
    [
        *("HOME", "USER", "LOGNAME", "PATH", "PWD", "OLDPWD", "SHELL", "TERM", "COLUMNS", "LINES", "LANG", "LANGUAGE"),
        *("TZ", "TMPDIR", "TMP", "TEMP", "HOSTNAME", "DISPLAY", "VIRTUAL_ENV", "CI", "RANK", "WORLD_SIZE", "NO_COLOR"),
        *("COLORTERM", "SHLVL", "_"),
    ]
)
SECRETS = ("_FOLDER", "_FILE", "_TOKEN", "_KEY", "_SECRET", "_PASSWORD")  # endings of names, of places too


class Whose(Enum):
    """Whose code a file has."""

    STANDARD = "the standard library's"
    USERS = "the user's"
    OTHERS = "a package's"


class Asked:
    """What was asked for. ``begun_with`` are the variables with which the process began."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.begun_with = dict(os.environ)
        self.whole: tuple[CodeType, int] | None = None  # the instruction that reads all variables, such as dict()
        self._whose: dict[str, Whose] = {}

    def digests(self) -> dict[str, str]:
        """By name; empty for a variable that was not set."""
        return {name: self._digest(name) for name in sorted(self.names) if is_recorded(name, self.begun_with)}

    def _digest(self, name: str) -> str:
        value = self.begun_with.get(name)
        text = f"{name}={value}".encode(errors="surrogateescape")
        return "" if value is None else hashlib.sha256(text).hexdigest()[:DIGITS]

    def note(self, name: str, frame: Any) -> None:
        """The frame looks up a variable. Its nearest caller outside of the standard library decides whose that is."""
        takes_all = self.whole is not None and self.whole[0] is frame.f_code and self.whole[1] == frame.f_lasti
        if takes_all or frame.f_code.co_name == ITERATES:
            return
        while frame is not None and (whose := self._whose_is(frame.f_code.co_filename)) == Whose.STANDARD:
            frame = frame.f_back
        if frame is not None and whose == Whose.USERS:
            self.names.add(name)

    def _whose_is(self, file: str) -> Whose:
        if file not in self._whose:
            installed = is_installed(file)
            standard = file.startswith("<") or (file.startswith(STANDARD) and "-packages" not in file)
            others = installed or file.startswith(PACKAGE)
            self._whose[file] = Whose.STANDARD if standard else Whose.OTHERS if others else Whose.USERS
        return self._whose[file]


def is_recorded(name: str, variables: dict[str, str]) -> bool:
    """Whether the variable may say something that no other record has. A path's content is in the record of files."""
    from perfsuite.catalog.tuning import SUFFIXES, is_tuning

    left_out = name in NAMES or name.startswith(OTHERS) or name.endswith((*SECRETS, *SUFFIXES)) or is_tuning(name)
    ours = name in variables.get("PERFSUITE_SETS", "").split()
    return not left_out and not ours and not variables.get(name, "").startswith(("/", "~", "."))


_here: Asked | None = None


def watch() -> Asked:
    """Note from now on what this process is asked for, once."""
    global _here
    if _here is not None:
        return _here
    asked = _here = Asked()
    kind: Any = type(os.environ)
    look_up, keys = kind.__getitem__, kind.keys

    def getitem(self: Any, name: Any) -> Any:
        if isinstance(name, str) and name not in asked.names:
            asked.note(name, sys._getframe(1))
        return look_up(self, name)

    def all_keys(self: Any) -> Any:
        frame = sys._getframe(1)
        asked.whole = frame.f_code, frame.f_lasti
        return keys(self)

    kind.__getitem__, kind.keys = getitem, all_keys
    return asked
