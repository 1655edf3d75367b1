"""The processes of a script on this machine, as the kernel lists them."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class FamilyProcess(NamedTuple):
    """Its parent, the name of its program, and the variables with which it began."""

    parent: int
    name: str
    variables: frozenset[bytes]


def running() -> dict[int, FamilyProcess]:
    """All processes by their numbers. Those of other users have no variables."""
    found = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            head, _, rest = (folder / "stat").read_text().rpartition(")")
        except OSError:  # it has ended
            continue
        try:
            variables = frozenset((folder / "environ").read_bytes().split(b"\0"))
        except OSError:
            variables = frozenset()
        found[int(folder.name)] = FamilyProcess(int(rest.split()[1]), head.partition("(")[2], variables)
    return found


def with_children(first: Iterable[int], processes: dict[int, FamilyProcess]) -> set[int]:
    """These processes with all that they have started, and those in turn."""
    family = set(first)
    while more := {pid for pid, process in processes.items() if process.parent in family} - family:
        family |= more
    return family


def descendants() -> set[int]:
    """What this process has started."""
    return with_children([os.getpid()], running()) - {os.getpid()}
