"""The fresh copy of the working folder in which a script runs: what it writes is not the user's, and no launch finds
what an earlier one has left.

The copy has the same path as the original, below another root. So a relative path that leaves the repository finds the
small files and folders beside it, which are copied as well. Nothing is a link: a script that saves its checkpoints
there would replace the user's.
"""

import contextlib
import itertools
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from perfsuite.errors import UsageError
from perfsuite.rank.script.read_files import mark_unread
from perfsuite.system.paths import is_left_out
from perfsuite.system.units import show_bytes

ROOT = "root"  # in a cell's folder: what has the script's copy, whose path in it is that of the user's folder
MOST_BYTES = 2 * 2**30
MOST_LEVELS = 3  # folders above the repository whose entries a script finds
MOST_NEIGHBOURS = 1_000  # entries of such a folder: one with more is a place for everything, and stays empty
SMALL_BYTES, SMALL_FILES = 16 * 2**20, 200  # of a file or a folder beside the repository that is copied
MOST_LOOKS = 5_000  # files beside the repository that are looked at


def copy_folder(top: Path, copy: Path) -> None:
    """Copy everything but LEFT_OUT and virtual environments. Raises UsageError if it is too large."""
    size = 0
    for folder, folders, files in os.walk(top):
        folders[:] = [name for name in folders if not is_left_out(Path(folder, name))]
        there = copy / Path(folder).relative_to(top)
        there.mkdir(parents=True, exist_ok=True)
        for name in [name for name in folders if Path(folder, name).is_symlink()]:
            (there / name).symlink_to(os.readlink(Path(folder, name)))
            mark_unread(there / name, Path(folder, name))
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
            mark_unread(there / name, path)


def place_below(root: Path, top: Path) -> Path:
    """Where the copy of a folder is, below another root."""
    return root / top.relative_to(top.anchor)


def copy_neighbours(root: Path, top: Path) -> None:
    """Let a path below ``root`` find what is small beside the folder, and beside those above it."""
    looks = itertools.count()
    for inside in [top, *top.parents][:MOST_LEVELS]:
        try:
            entries = list(itertools.islice(os.scandir(inside.parent), MOST_NEIGHBOURS + 1))
        except OSError:  # the user may not list it
            continue
        there = place_below(root, inside.parent)
        there.mkdir(parents=True, exist_ok=True)
        for entry in entries if len(entries) <= MOST_NEIGHBOURS else []:
            original, place = Path(entry.path), there / entry.name
            if not os.path.lexists(place) and next(looks) < MOST_LOOKS and _is_small(original, looks):
                with contextlib.suppress(OSError, shutil.Error):
                    copy = shutil.copytree if original.is_dir() else shutil.copy2
                    copy(original, place)


def _is_small(original: Path, looks: Iterator[int]) -> bool:
    """Whether a file, or all of a folder, is small; not if it has links, is another repository, or may not be read."""
    files = size = 0
    waiting = [original]
    try:
        while waiting:
            place = waiting.pop()
            about = place.lstat()
            if stat.S_ISDIR(about.st_mode) and not is_left_out(place):
                waiting += place.iterdir()
            elif not stat.S_ISREG(about.st_mode):
                return False
            files, size = files + 1, size + about.st_size
            if files > SMALL_FILES or size > SMALL_BYTES or next(looks) >= MOST_LOOKS:
                return False
    except OSError:
        return False
    return True


def as_the_user_says(text: str, folder: Path) -> str:
    """A text of the script of a cell with that folder, with the user's own paths in the place of the copy's."""
    return text.replace(str(folder / ROOT), "")


def moved(words: Iterable[str], top: Path, copy: Path) -> list[str]:
    """The words of a command with the copy in place of the folder."""
    return [f"{copy}{word.removeprefix(str(top))}" if word.startswith(f"{top}/") else word for word in words]
