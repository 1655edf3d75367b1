"""How uv is called, with the package index that is set, and what its refusals mean."""

import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Sequence
from functools import cache

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from perfsuite.environments.bounded import run
from perfsuite.errors import UsageError

# What uv says if the index lacks a version, or the package; a version may also exist and fit nothing else here.
_ABSENT = r"(?i)there (?:is|are) no versions? of {0}\b|\b{0} was not found in the package registry"
_HIDDEN = "`{0}` was filtered by `exclude-newer`"  # uv adds it: without dates it leaves out every release


def uv_command() -> list[str]:
    if importlib.util.find_spec("uv"):
        return [sys.executable, "-m", "uv"]
    found = shutil.which("uv")
    if not found:
        raise UsageError("uv, which builds environments, is not installed: pip install uv.")
    return [found]


def uv_variables() -> dict[str, str]:
    """This process' environment variables for uv, which then uses pip's index."""
    address = index_address()
    return {**os.environ, "UV_DEFAULT_INDEX": address} if address else dict(os.environ)


def index_address() -> str:
    """The package index that is set for uv or else for pip; empty if neither has one."""
    known = [os.environ.get(name, "") for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL")]
    address = next(filter(None, known), "") or _index_of_pip()
    return re.sub(r"^[\w.-]+=(?=\w+://)", "", address)  # uv's may have a name


@cache
def _index_of_pip() -> str:
    """The index in pip's configuration files; empty if pip is not installed."""
    command = [sys.executable, "-m", "pip", "config", "list"]  # its `get` ignores PIP_CONFIG_FILE
    said = run(command).stdout
    return next(reversed(re.findall(r"^(?:global|install)\.index-url='(.*)'$", said, re.MULTILINE)), "")


def why_not_installed(error: UsageError, requirements: Sequence[Requirement]) -> str:
    """Which of the requirements uv did not find, in fewer words than its own; else the error itself."""
    said = str(error)
    hidden = [str(one) for one in requirements if _HIDDEN.format(canonicalize_name(one.name)) in said]
    if hidden:
        return (
            f"uv leaves out {' and '.join(hidden)}, since exclude-newer is set: the package index has a later date "
            "for it, or none. Unset UV_EXCLUDE_NEWER, or exclude-newer in uv's configuration."
        )
    absent = [str(one) for one in requirements if re.search(_ABSENT.format(re.escape(one.name)), said)]
    return f"The package index has no {' and no '.join(absent)}: check the version." if absent else said
