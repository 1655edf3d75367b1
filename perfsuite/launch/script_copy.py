"""The fresh copy of the working folder in which a script runs: what it writes is not the user's, and no launch finds
what an earlier one has left.

The copy has the same path as the original, below another root. So a relative path that leaves the repository finds what
is beside it: small files are copied as well, and everything else is a link to the user's own.
"""

import itertools
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from perfsuite.errors import UsageError
from perfsuite.paths import is_left_out
from perfsuite.rank.script.read_files import mark_unread
from perfsuite.units import show_bytes

MOST_BYTES = 2 * 2**30
MOST_LEVELS = 3  # folders above the repository whose entries a script finds
MOST_NEIGHBOURS = 1_000  # entries of such a folder: one with more is a place for everything, and stays empty
SMALL_BYTES = 2**20  # of a file beside the repository that is copied


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


def place_below(root: Path, top: Path) -> Path:
    """Where the copy of a folder is, below another root."""
    return root / top.relative_to(top.anchor)


def link_neighbours(root: Path, top: Path) -> None:
    """Let a path below ``root`` find what is beside the folder, and beside those above it."""
    for inside in [top, *top.parents][:MOST_LEVELS]:
        try:
            entries = list(itertools.islice(os.scandir(inside.parent), MOST_NEIGHBOURS + 1))
        except OSError:  # the user may not list it
            continue
        there = place_below(root, inside.parent)
        there.mkdir(parents=True, exist_ok=True)
        for entry in entries if len(entries) <= MOST_NEIGHBOURS else []:
            if not os.path.lexists(there / entry.name):
                _copy_or_link(Path(entry.path), there / entry.name)


def _copy_or_link(original: Path, place: Path) -> None:
    """A small file is the copy's own. A link, or what cannot be read, is not followed."""
    try:
        if not original.is_symlink() and original.is_file() and original.stat().st_size <= SMALL_BYTES:
            shutil.copy2(original, place)
            return
    except OSError:
        place.unlink(missing_ok=True)
    place.symlink_to(original)


def moved(words: Iterable[str], top: Path, copy: Path) -> list[str]:
    """The words of a command with the copy in place of the folder."""
    return [f"{copy}{word.removeprefix(str(top))}" if word.startswith(f"{top}/") else word for word in words]
