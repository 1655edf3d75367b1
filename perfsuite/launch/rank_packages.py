"""What a rank of perfsuite imports besides torch, for a training environment that has none of it.

    python -m perfsuite.launch.rank_packages PYTHON EXTENSIONS VERSION

A rank asks for it by this command, since nobody knows before which Python `poetry run` or `make train` will start. The
packages are this process' own if PYTHON loads the same extensions. Otherwise they are installed for it, once, in a
folder of perfsuite's cache. The training environment itself is never changed.
"""

import importlib.util
import shutil
import sys
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from perfsuite.environments.bounded import output
from perfsuite.environments.uv import uv_command, uv_variables
from perfsuite.errors import PerfsuiteError, UsageError
from perfsuite.rank.script.needs import NEEDS, TOML
from perfsuite.system.builds import kept

FOLDER = "site-packages"  # what lies in one is nobody's own code
WITH_TOML = (3, 11)  # the first Python that reads TOML by itself


def rank_packages(python: str, extensions: str, version: tuple[int, int]) -> Path:
    """The folder that has them. ``extensions`` is how this Python's extensions end.

    Raises UsageError if they cannot be installed.
    """
    if extensions == EXTENSION_SUFFIXES[0]:
        own = [_place(name) for name in NEEDS]
        return kept("rank_packages", [extensions, *map(str, own)], lambda folder: _link(folder, own)) / FOLDER
    names = [*NEEDS.values(), *([] if version >= WITH_TOML else [TOML])]
    return kept("rank_packages", [extensions, *names], lambda folder: _install(folder, python, names)) / FOLDER


def _place(module: str) -> Path:
    """The folder of a package, or the file of a module."""
    found = importlib.util.find_spec(module)
    assert found and found.origin, f"{module} is not installed next to perfsuite"
    return Path(found.origin).parent if found.submodule_search_locations else Path(found.origin)


def _link(folder: Path, places: Sequence[Path]) -> None:
    (folder / FOLDER).mkdir(parents=True)
    for place in places:
        (folder / FOLDER / place.name).symlink_to(place)


def _install(folder: Path, python: str, names: Sequence[str]) -> None:
    there = folder / FOLDER
    there.mkdir(parents=True)
    try:
        command = [*uv_command(), "pip", "install", "--quiet", "--python", python]
    except UsageError:
        command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    try:
        output([*command, "--target", str(there), *names], uv_variables())
    except UsageError as error:
        raise UsageError(
            f"perfsuite measures {python} with {', '.join(names)}, which could not be installed for it: {error} "
            "Install uv, or a perfsuite of the same Python version."
        ) from error
    for about in there.glob("*.dist-info"):  # they are no distributions of the training environment
        shutil.rmtree(about)


def main() -> None:
    """Print the folder."""
    python, extensions, version = sys.argv[1:]
    major, minor = map(int, version.split("."))
    try:
        print(rank_packages(python, extensions, (major, minor)))
    except PerfsuiteError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
