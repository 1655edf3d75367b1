"""The content that a user's file had when it was recorded, found by its digest.

No commit need be known for that: git names a file's content by the digest that a record has. So it is found after a
squash or a rebase, and in commits that came later. It is looked for

1. in perfsuite's cache folder, which keeps what the records of this machine need,
2. where the file is now: an installed package may differ from the tree that it was installed from,
3. in git's objects, those of the submodule that has the file, by the digest itself,
4. in the recorded commit and in every commit that changed the file: line ends, filters and LFS give a file on the disk
   another content than git has,
5. in the recorded commit after it was fetched, if this clone does not have it.

The cache folder keeps the contents, not git: other clones of the repository find them there too, and nothing is
written into the user's repository. ``contents`` there may be deleted at any time.
"""

import contextlib
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from perfsuite.environments.content import DIGITS, MOST_BYTES, Content, digest_of_file, of_content
from perfsuite.environments.git_contents import by_repository, in_git
from perfsuite.errors import UsageError
from perfsuite.system.paths import cache_folder

GRACE_SECONDS = 30 * 24 * 3600.0  # before a content that no record of this clone needs is removed


def keep(project: str, root: Path, digests: Mapping[str, str], places: Mapping[str, Path]) -> None:
    """Keep the contents of these files of the project, if they are still those of the record. ``places`` are those of
    files that are elsewhere than below ``root``. A cache that cannot be written keeps none.
    """
    with contextlib.suppress(OSError, UsageError):
        folder = cache_folder() / "contents" / project
        folder.mkdir(parents=True, exist_ok=True)
        for path, digest in digests.items():
            kept, place = folder / _name(path, digest), places.get(path, root / path)
            if kept.exists():
                os.utime(kept)
            elif place.stat().st_size <= MOST_BYTES and digest_of_file(place) == of_content(digest):
                part = kept.with_suffix(f".{os.getpid()}.part")
                shutil.copy(place, part)
                part.replace(kept)


def prune(project: str, needed: Callable[[], Iterable[Mapping[str, str]]]) -> None:
    """Remove what was not stored for long, if none of the project's records needs it. ``needed`` reads the records."""
    with contextlib.suppress(OSError, UsageError):
        folder, oldest = cache_folder() / "contents" / project, time.time() - GRACE_SECONDS
        if old := [kept for kept in folder.iterdir() if kept.stat().st_mtime < oldest]:
            names = {_name(path, digest) for digests in needed() for path, digest in digests.items()}
            for kept in old:
                if kept.name in names:
                    os.utime(kept)
                else:
                    kept.unlink(missing_ok=True)


def _name(path: str, digest: str) -> str:
    return f"{of_content(digest)}-{hashlib.sha1(path.encode(), usedforsecurity=False).hexdigest()[:DIGITS]}"


def _kept(path: str, digest: str) -> Path | None:
    """What a record of any clone has kept for this file."""
    with contextlib.suppress(OSError, UsageError):
        for file in (cache_folder() / "contents").glob(f"*/{_name(path, digest)}"):
            if digest_of_file(file) == of_content(digest):
                return file
    return None


def find(root: Path, digests: Mapping[str, str], commit: str, places: Mapping[str, Path]) -> dict[str, Content]:
    """The contents of these files of the repository, by their paths. ``commit`` is the recorded one, if there is one.

    Raises Missing for the first one that is nowhere.
    """
    found, ahead = {}, {}
    for path, digest in digests.items():
        kept, place = _kept(path, digest), places.get(path, root / path)
        if kept or digest_of_file(place) == of_content(digest):
            found[path] = Content(file=kept or place)
        elif (tree := root / path).is_file() and digest_of_file(tree) == of_content(digest):
            found[path] = Content(file=tree)
        else:
            ahead[path] = of_content(digest)
    for top, paths in by_repository(root, ahead).items():
        found |= in_git(root, top, {path: ahead[path] for path in paths}, commit)
    return found
