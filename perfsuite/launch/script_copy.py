"""The fresh copy of the working folder in which a script runs: what it writes is not the user's, and no launch finds
what an earlier one has left.
"""

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from perfsuite.errors import UsageError
from perfsuite.paths import is_left_out
from perfsuite.rank.script.read_files import mark_unread
from perfsuite.units import show_bytes

MOST_BYTES = 2 * 2**30


def copy_folder(top: Path, copy: Path) -> None:
    """Copy everything but LEFT_OUT and virtual environments. Raises UsageError if it is too large."""
    size = 0
    for folder, folders, files in os.walk(top):
        folders[:] = [name for name in folders if not is_left_out(Path(folder, name))]
        there = copy / Path(folder).relative_to(top)
        there.mkdir(parents=True, exist_ok=True)
        for name in [name for name in folders if Path(folder, name).is_symlink()]:
            (there / name).symlink_to(os.readlink(Path(folder, name)))
        for name in files:
            path = Path(folder, name)
            if not (path.is_symlink() or path.is_file()):
                continue
            size += 0 if path.is_symlink() else path.stat().st_size
            if size > MOST_BYTES:
                raise UsageError(
                    f"A script runs in a copy of {top}, which is larger than {show_bytes(MOST_BYTES)}. Move its data "
                    "out of it, and give the script their absolute path."
                )
            shutil.copy2(path, there / name, follow_symlinks=False)
            if not path.is_symlink():
                mark_unread(there / name)


def moved(words: Iterable[str], top: Path, copy: Path) -> list[str]:
    """The words of a command with the copy in place of the folder."""
    return [f"{copy}{word.removeprefix(str(top))}" if word.startswith(f"{top}/") else word for word in words]
