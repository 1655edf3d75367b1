"""Hashes of files as records keep them, one entry per folder: ``{"models": "net.py:1f0c93ab loss.py:77de0a41"}``."""

import itertools
import re
from collections.abc import Mapping
from pathlib import PurePosixPath


def pack(hashes: Mapping[str, str]) -> dict[str, str]:
    """Paths with hashes as a record."""
    names = sorted((PurePosixPath(path), found) for path, found in hashes.items() if found)
    folders = itertools.groupby(sorted(names, key=lambda one: str(one[0].parent)), key=lambda one: str(one[0].parent))
    return {folder: " ".join(f"{path.name}:{found}" for path, found in group) for folder, group in folders}


def unpack(record: Mapping[str, str]) -> dict[str, str]:
    """A record as hashes by path."""
    return {
        str(PurePosixPath(folder, name)): found
        for folder, text in record.items()
        for name, found in re.findall(r"(.+?):([0-9a-f]+)(?: |$)", text)
    }
