"""Every private name of torch and transformers that perfsuite uses, why, and which releases have it.

perfsuite uses none of DeepSpeed or accelerate.

A library may drop a private name in any release. tests/project/test_compat.py finds the names that the code uses, holds
them to these lists and looks each one up in the installed releases. So a private name that is not listed here fails a
test, and one that a release has dropped is named before a cell needs it. A cell that needs it is unsupported, with the
releases that have the name.
"""

import pkgutil
import re
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import msgspec
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from perfsuite.errors import Unsupported

# The oldest and the newest release whose Python files and stubs were searched for every name.
SEARCHED = {"torch": ("2.6", "2.15"), "transformers": ("4.44", "5.23")}


class Private(NamedTuple):
    """What a name is for, the first release that has it and the first that has it no more; empty: all that were
    searched have it.
    """

    why: str
    since: str = ""
    until: str = ""


_TABLES = msgspec.toml.decode(Path(__file__).with_suffix(".toml").read_bytes(), type=dict[str, dict[str, Private]])
NAMES, OPERATORS, ATTRIBUTES = (_TABLES[kind] for kind in ("names", "operators", "attributes"))


def is_there(path: str) -> bool:
    """Whether the installed releases have what is imported or found by that path."""
    try:
        pkgutil.resolve_name(path)
    except (AttributeError, ImportError):  # transformers imports its parts when they are asked for
        return False
    return True


def lacking(error: BaseException) -> Unsupported | None:
    """What the error is if an installed release lacks a private name; None if it is another error."""
    if not isinstance(error, AttributeError | ImportError):
        return None
    if isinstance(error, AttributeError) and error.name in ATTRIBUTES:
        entry, library = ATTRIBUTES[error.name], type(error.obj).__module__.partition(".")[0]
        return _lacking(library, error.name, entry) if library in SEARCHED and not _in_range(library, entry) else None
    said = set(re.findall(r"\w+", str(error)))
    for path, entry in (NAMES | {f"torch.ops.{name}": entry for name, entry in OPERATORS.items()}).items():
        library, name = path.partition(".")[0], path.rpartition(".")[2]
        module = isinstance(error, ImportError) and error.name and f"{path}.".startswith(f"{error.name}.")
        if (module or name in said) and not is_there(path) and is_there(library):
            return _lacking(library, path, entry)
    return None


def _lacking(library: str, path: str, entry: Private) -> Unsupported:
    release, has_it = metadata.version(library), f"{library}{_range(library, entry)}"
    return Unsupported(f"{library} {release} has no {path} ({entry.why}): {has_it} has it.")


def _range(library: str, entry: Private) -> str:
    oldest, newest = SEARCHED[library]
    return f">={entry.since or oldest}," + (f"<{entry.until}" if entry.until else f"<={newest}")


def _in_range(library: str, entry: Private) -> bool:
    """Whether the installed release should have it; then an object without it is another error."""
    minor = ".".join(map(str, Version(metadata.version(library)).release[:2]))
    return SpecifierSet(_range(library, entry)).contains(minor)
