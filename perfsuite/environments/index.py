"""The releases of a library, from the package index that pip and uv use, with their dates."""

import bisect
import difflib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from perfsuite.environments import dates
from perfsuite.environments.uv import index_address
from perfsuite.errors import UnknownName, UsageError

SHOWN = 12  # known releases in an error message
BY_INDEX, BY_FILE, BY_BUILD = "index", "file", "build"


@dataclass(frozen=True)
class Release:
    """``date`` is the upload date of its first file; None if the index has none. ``by`` is the source of the date: the
    index, the file of ``--dates``, or the build time of the release's own ``files``.
    """

    version: str
    date: datetime | None
    files: tuple[str, ...] = ()
    by: str = BY_INDEX

    @property
    def moment(self) -> datetime:
        """The date, of a release that `dated` or `chosen` returned."""
        assert self.date is not None
        return self.date


def releases(library: str, *, yanked: bool = False) -> list[Release]:
    """All final releases in the order of their versions; those whose files are all yanked only with ``yanked``.

    Raises UsageError for a library that the index does not have, or if the index does not answer.
    """
    found: dict[Version, datetime | None] = {}
    files: dict[Version, list[str]] = {}
    for file in _files(index_address(), library):
        version = _version(file.version)
        if version is None or version.is_prerelease or (file.is_yanked and not yanked):
            continue
        known = [date for date in (found.get(version), file.upload_time) if date is not None]
        found[version] = min(known, default=None)
        files.setdefault(version, []).append(file.url)
    if not found:
        raise UsageError(f"The package index has no final release of this library: {library}.")
    return [Release(str(version), found[version], tuple(files[version])) for version in sorted(found)]


def tells_dates(library: str) -> bool:
    """Whether the index has upload dates for the library's files, so that uv can use them too."""
    return any(file.upload_time is not None for file in _files(index_address(), library))


@cache
def _files(address: str, library: str) -> list[Any]:
    """The index's entries for each file. Raises UsageError as `releases` does."""
    try:
        from pypi_simple import NoSuchProjectError, PyPISimple
        from requests.exceptions import RequestException
    except ImportError as error:
        raise UsageError(
            "Releases are listed with pypi-simple, which is not installed: pip install pypi-simple."
        ) from error
    if (folder := dates.path_of(address)) is not None:
        return _files_of_folder(folder / canonicalize_name(library) / "index.html", library)
    try:
        with PyPISimple(address) if address else PyPISimple() as client:
            return client.get_project_page(library, timeout=60).packages
    except NoSuchProjectError as error:
        raise UsageError(f"The package index has no library named {library!r}: {error}.") from error
    except RequestException as error:
        raise UsageError(
            f"The package index does not answer for {library}: {error}. UV_DEFAULT_INDEX sets another one."
        ) from error


def _files_of_folder(page: Path, library: str) -> list[Any]:
    """The same of an index that is a folder, as pip and uv take one too. Such an index has no dates."""
    from pypi_simple import ProjectPage

    try:
        html = page.read_bytes()
    except OSError as error:
        raise UsageError(f"The package index has no library named {library!r}: {error}.") from error
    return ProjectPage.from_html(library, html, f"{page.parent.as_uri()}/").packages


def dated(library: str, release: Release, given: Mapping[str, str]) -> Release:
    """The release with its date: the given one, or else the index's, or else that of its files.

    Raises UsageError if there is none.
    """
    found = try_dated(library, release, given)
    if found.date is None:
        raise UsageError(
            f"{library} {release.version} has no date: neither the package index nor its files have one. Give "
            f"--dates FILE with a line {library},{release.version},YYYY-MM-DD."
        )
    return found


def try_dated(library: str, release: Release, given: Mapping[str, str]) -> Release:
    """The same, but there may be no date."""
    if text := given.get(dates.key_of(library, release.version)):
        return replace(release, date=datetime.fromisoformat(text), by=BY_FILE)
    if release.date is None:
        return replace(release, date=dates.of_files(release.files), by=BY_BUILD)
    return release


def _version(text: str | None) -> Version | None:
    try:
        return Version(text or "")
    except InvalidVersion:
        return None


def one(library: str, version: str, known: Sequence[Release], *, yanked: bool = False) -> Release:
    """The release of that version. Raises UnknownName with the nearest ones. ``yanked``: these are among the known."""
    for release in known:
        if _version(release.version) == _version(version) is not None:
            return release
    some = sorted((release.version for release in known), key=Version)
    asked = _version(version)
    if asked is None:
        near, shown = next(iter(difflib.get_close_matches(version, some, n=1)), ""), some[-SHOWN:]
    else:
        at = bisect.bisect(some, asked, key=Version)
        near = max(some[max(0, at - 1) : at + 1], key=lambda text: _alike(Version(text), asked))
        begin = max(0, min(at - SHOWN // 2, len(some) - SHOWN))
        shown = some[begin : begin + SHOWN]
    left = "pre-releases" if yanked else "pre-releases or yanked"
    these = f"These are the {'nearest' if asked else 'newest'}"
    add = f"{these} of {len(some)} releases, {some[0]} to {some[-1]}, without {left}."
    raise UnknownName(f"release of {library}", version, shown, add, near)


def _alike(known: Version, asked: Version) -> int:
    """How many leading numbers of two versions are the same."""
    pairs = zip(known.release, asked.release, strict=False)
    return len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)))


def chosen(
    library: str,
    first: str,
    last: str,
    only: Sequence[str],
    had: Sequence[Release] = (),
    given: Mapping[str, str] | None = None,
) -> list[Release]:
    """The releases from ``first`` to ``last``, both included, or ``only`` these; no ``last``: the newest. ``had`` are
    those that a ladder already has: the index may have yanked some since. ``given`` are dates.

    Raises UsageError for an invalid range, an unknown release, and one without a date.
    """
    listed = {release.version: release for release in (*releases(library), *had)}
    known = sorted(listed.values(), key=lambda release: Version(release.version))
    if only:
        wanted = [one(library, version, known) for version in only]
        return [dated(library, release, given or {}) for release in known if release in wanted]
    low = Version(one(library, first, known).version)
    high = Version(one(library, last, known).version) if last else Version(known[-1].version)
    if high < low:
        raise UsageError(f"--from {first} is newer than --to {last or high}: a ladder goes from old to new.")
    inside = [release for release in known if low <= Version(release.version) <= high]
    return [dated(library, release, given or {}) for release in inside]
