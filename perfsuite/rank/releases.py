"""What a cell needs of a library and an installed release lacks: the sentence in which it is refused."""

from __future__ import annotations

import importlib
from importlib import metadata

from perfsuite.errors import Unsupported


def lacks(who: str, library: str, what: str, since: str = "") -> Unsupported:
    """The refusal: ``who`` is engine and technique, ``since`` the first release that has it, where that is known."""
    way_out = f": {since} is the first that does" if since else ""
    return Unsupported(f"{who} cannot run on {library} {metadata.version(library)}, which has no {what}{way_out}.")


def need(path: str, who: str, since: str = "") -> None:
    """Raise Unsupported unless the library has the attribute or the module that ``path`` names."""
    module, _, name = path.rpartition(".")
    try:
        if hasattr(importlib.import_module(module), name):
            return
        importlib.import_module(path)
    except ImportError as error:
        raise lacks(who, path.partition(".")[0], path, since) from error
