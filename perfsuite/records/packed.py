"""Hashes of files as records keep them, one entry per folder: ``{"models": "net.py:1f0c93ab.77de0a41 a.bin:2b00"}``.

The first hash is git's of the file. That of a Python file may have a second one behind a dot, of its code alone
(records/python_code.py).
"""

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath

from perfsuite.system.paths import PACKAGE

HASHES = re.compile(r"[0-9a-f]+(\.[0-9a-f]+)?")


def same_content(before: str, now: str) -> bool:
    """Whether the hashes of a file on two sides are of one content, or of one code. An empty one is of no file."""
    blobs, codes = zip(*(text.partition(".")[::2] for text in (before, now)), strict=True)
    return blobs[0] == blobs[1] or bool(codes[0] and codes[0] == codes[1])


def pack(hashes: Mapping[str, str]) -> dict[str, str]:
    """Paths with hashes as a record."""
    files = sorted((PurePosixPath(path), digest) for path, digest in hashes.items() if digest)
    folders = itertools.groupby(sorted(files, key=_folder), key=_folder)
    return {folder: " ".join(f"{path.name}:{digest}" for path, digest in group) for folder, group in folders}


def _folder(file: tuple[PurePosixPath, str]) -> str:
    return str(file[0].parent)


def to_record(files: Iterable[str], most: int) -> list[str]:
    """At most so many of the files, in their order. Those of a folder with fewer of them come first: a settings file
    counts, whatever the number of a data set's files beside it.
    """
    files = sorted(set(files))
    beside = Counter(str(PurePosixPath(file).parent) for file in files)
    return sorted(sorted(files, key=lambda file: beside[str(PurePosixPath(file).parent)])[:most])


def unpack(record: Mapping[str, str]) -> dict[str, str]:
    """A record as hashes by path."""
    return {
        str(PurePosixPath(folder, name)): digest for folder, text in record.items() for name, digest in _entries(text)
    }


def own_files(record: Mapping[str, str]) -> dict[str, str]:
    """The user's own files of a record, with their hashes: all but perfsuite's, which measures and is not measured. In
    its own repository, ranks import it from a folder of its name. So may a user's be called.
    """
    hashes = unpack(record)
    return {path: digest for path, digest in hashes.items() if not _is_perfsuites(path)}


def _is_perfsuites(path: str) -> bool:
    return PurePosixPath(path).parts[0] == PACKAGE.name and (PACKAGE.parent / path).exists()


def _entries(text: str) -> Iterator[tuple[str, str]]:
    """The names of a folder's files with their hashes. A name may have spaces: it ends before its hash."""
    begun: list[str] = []
    for word in text.split(" "):
        name, colon, digest = word.rpartition(":")
        if colon and HASHES.fullmatch(digest):
            yield " ".join([*begun, name]), digest
            begun = []
        else:
            begun.append(word)
