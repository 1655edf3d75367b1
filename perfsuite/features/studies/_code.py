"""The code that made a measurement, in addition to the libraries, whose versions it contains."""

import functools
import importlib.util
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path

from perfsuite.records.job import Job
from perfsuite.system.paths import code_files, content_hash


def digest_of(job: Job) -> str:
    """A digest of perfsuite's code, the catalogs', and that of the package whose function builds the model. Modules
    that a catalog's files import from elsewhere are not included.
    """
    package = job.model.build.partition(":")[0].partition(".")[0]
    return _digest(tuple(sorted({"perfsuite", package})), tuple(job.catalogs), tuple(job.import_path))


@functools.cache
def _digest(packages: tuple[str, ...], folders: tuple[str, ...], path: tuple[str, ...]) -> str:
    roots = (*(place for name in packages for place in _places(name, path)), *map(Path, folders))
    return content_hash(file for root in roots for file in code_files(root))[:20]


def _places(package: str, path: tuple[str, ...]) -> Iterator[Path]:
    """The package's folders, or its only file; nothing is imported."""
    found = importlib.util.find_spec(package) or PathFinder.find_spec(package, path)
    if found is None:
        return
    if found.submodule_search_locations:
        yield from map(Path, found.submodule_search_locations)
    elif found.origin:
        yield Path(found.origin)
