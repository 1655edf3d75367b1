"""The lock of a rung: every package of its environment by exact version, as uv resolves it.

Packages that the ladder does not pin are taken as of the rung's release date, and as on the rung below if that still
fits. So a rung differs from the one below only in the release, and in what that forces.
"""

import os
import re
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from packaging.utils import canonicalize_name

from perfsuite.environments import bounded, requirements
from perfsuite.environments.bounded import FRAMES, output
from perfsuite.environments.uv import uv_command, uv_variables
from perfsuite.errors import UsageError

RUNNER = ("asv-runner", "pip", "pympler")  # asv runs these in a rung's environment; uv's sync would remove them
SHIMS = "shims"  # the folder in which pyenv, asdf and mise have theirs, beside those of what is installed
INSTALLED = ("versions/*/bin", "installs/python/*/bin")
MARGIN = timedelta(days=1)  # a release's dependencies may be uploaded some hours later
_FOR_GOOD = ("No solution found", "The build backend returned an error")  # uv's messages; others may be the network
_VERSION = "import sys; print('.'.join(map(str, sys.version_info[:2])), sys.executable)"


class Unsolvable(UsageError):
    """Requirements that conflict, with uv's reason."""


def find_python(asked: str) -> tuple[str, str]:
    """``3.10`` or a path → ``3.10`` and the interpreter's path. Raises UsageError if uv finds none."""
    try:
        found = output([*uv_command(), "python", "find", "--no-project", asked], {**os.environ, "PATH": _search_path()})
        found = found.strip()
    except UsageError as error:
        said = str(error).rstrip(".")
        raise UsageError(f"--python {asked}: {said}. Give the path of one, or: uv python install 3.10.") from error
    version, path = output([found, "-c", _VERSION]).split(maxsplit=1)
    return version, path.strip()


def _search_path() -> str:
    """PATH with the interpreters themselves in the place of shims: one of pyenv, asdf or mise refuses to run, or runs
    another Python than its name says, by the folder that it is called in.
    """
    folders = [Path(one) for one in os.environ.get("PATH", "").split(os.pathsep) if one]
    found = []
    for folder in folders:
        is_shims = folder.name == SHIMS
        installed = [
            one for kept in INSTALLED for one in sorted(folder.parent.glob(kept)) if (one / "python3").exists()
        ]
        found += installed if is_shims else [folder]  # uv cannot inspect a Python 2
    return os.pathsep.join(map(str, found))


def pinned(text: str) -> tuple[str, str]:
    """``datasets==2.10.1`` of ``--hold`` → its name and version. Raises UsageError for another text."""
    requirement = requirements.pinned(text, "--hold", alone=True)
    return canonicalize_name(requirement.name), next(iter(requirement.specifier)).version


def exact(requirements: Sequence[str]) -> list[tuple[str, str]]:
    """Name and version of the requirements that pin one version."""
    return [pinned(text) for text in requirements if re.fullmatch(r"[\w.-]+==[\w.+!-]+", text)]


def lock(
    requirements: Sequence[str], python: str, newest: datetime | None, below: str = "", limits: Sequence[str] = ()
) -> str:
    """The lock of these requirements; ``below`` is the lock of the rung below, ``newest`` the latest allowed upload
    date, by the index's own dates. ``limits`` are constraints.

    Raises Unsolvable if they conflict, and UsageError if uv fails for another reason, such as a missing network.
    """
    command = [*uv_command(), "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--python", python]
    if newest is not None:
        command += ["--exclude-newer", f"{newest + MARGIN:%Y-%m-%dT%H:%M:%SZ}"]
        now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        command += [word for name in RUNNER for word in ("--exclude-newer-package", f"{name}={now}")]
    with tempfile.TemporaryDirectory() as folder:
        asked, found = Path(folder, "asked.in"), Path(folder, "lock.txt")
        asked.write_text("\n".join([*requirements, *RUNNER]) + "\n")
        Path(folder, "limits.txt").write_text("\n".join(limits) + "\n")
        found.write_text(below)  # uv prefers the locked versions
        command += ["--directory", folder, str(asked), "-c", "limits.txt", "-o", str(found)]
        done = bounded.run(command, uv_variables())
        if done.returncode:
            said = " ".join(done.stderr.translate(FRAMES).split()) or f"uv ended with {done.returncode}."
            raise (Unsolvable if any(text in said for text in _FOR_GOOD) else UsageError)(said)
        return found.read_text()


def versions(text: str) -> dict[str, str]:
    """The packages of a lock by name."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, equal, version = line.partition("==")
        if equal and not line.startswith(("#", " ")):
            found[canonicalize_name(name.strip())] = version.split(";")[0].strip()
    return found


def differences(old: str, new: str) -> list[str]:
    """``numpy 1.23.5 -> 1.24.0`` for the differences between two locks, in the order of names."""
    before, after = versions(old), versions(new)
    return [
        f"{name} {before.get(name, 'none')} -> {after.get(name, 'none')}"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]
