"""A content that a user's file had, and its digests, of which records keep the first digits."""

import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from perfsuite.environments import git
from perfsuite.errors import UsageError
from perfsuite.records.change import Fixed
from perfsuite.records.python_code import code_digest

DIGITS = 8  # of each digest in a record
MOST_BYTES = 2**24  # of a file that is kept, or whose digest covers all of it


class Missing(UsageError):
    """The content of a file is nowhere. ``obstacle`` is the file, or git's message."""

    def __init__(self, fixed: Fixed, obstacle: str, way_out: str) -> None:
        super().__init__(way_out)
        self.fixed, self.obstacle = fixed, obstacle


@dataclass(frozen=True)
class Content:
    """A file's content: of a ``file``, or else of an ``object`` that the repository of a folder has. With a ``path`` it
    is what git would write to the disk for that path.
    """

    file: Path | None = None
    folder: Path = Path()
    object: str = ""
    path: str = ""

    def read(self) -> bytes:
        """All of it. Raises UsageError with git's message."""
        if self.file:
            return self.file.read_bytes()
        how = ["--filters", f"--path={self.path}"] if self.path else ["blob"]
        return git.read(self.folder, "cat-file", *how, self.object)

    def write(self, target: Path) -> None:
        """Write it to that path."""
        target.parent.mkdir(parents=True, exist_ok=True)
        if self.file:
            shutil.copy2(self.file, target)
        else:
            target.write_bytes(self.read())


def digest_of(content: bytes, size: int | None = None) -> str:
    """The first digits of the hash that git gives a file of this content; of a very large one, of its beginning."""
    size = len(content) if size is None else size
    digest = hashlib.sha1(b"blob %d\0" % size + content[:MOST_BYTES], usedforsecurity=False)
    return digest.hexdigest()[:DIGITS]


def digests_of(name: str, content: bytes, size: int | None = None) -> str:
    """The same and, of a Python file, a digest of its code behind a dot, as a record has it."""
    code = code_digest(content)[:DIGITS] if name.endswith(".py") and size in (None, len(content)) else ""
    return f"{digest_of(content, size)}.{code}" if code else digest_of(content, size)


def digest_of_file(path: Path) -> str:
    """The same of a file; empty if it cannot be read."""
    try:
        with path.open("rb") as file:
            return digest_of(file.read(MOST_BYTES), os.fstat(file.fileno()).st_size)
    except OSError:
        return ""


def of_content(digest: str) -> str:
    """The part of a record's digest that is the content's own."""
    return digest.partition(".")[0]
