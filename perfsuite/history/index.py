"""The releases of a library with their dates, from the package index that pip and uv use."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from packaging.version import InvalidVersion, Version

from perfsuite.errors import UnknownName, UsageError

SHOWN = 12  # known releases that an error names


@dataclass(frozen=True)
class Release:
    """``date`` is when the first of its files was uploaded."""

    version: str
    date: datetime


def releases(library: str, *, yanked: bool = False) -> list[Release]:
    """All final releases in the order of their versions; those whose files are all yanked only where asked for.

    Raises UsageError for a library that the index does not have, and where the index cannot be asked.
    """
    from pypi_simple import NoSuchProjectError, PyPISimple
    from requests.exceptions import RequestException

    endpoint = os.environ.get("UV_DEFAULT_INDEX") or os.environ.get("PIP_INDEX_URL")
    try:
        with PyPISimple(endpoint) if endpoint else PyPISimple() as client:
            page = client.get_project_page(library, timeout=60)
    except NoSuchProjectError as error:
        raise UsageError(f"The package index has no library named {library!r}: {error}.") from error
    except RequestException as error:
        raise UsageError(f"The package index cannot be asked for {library}: {error}.") from error
    dates: dict[Version, datetime] = {}
    dateless = False
    for file in page.packages:
        version = _version(file.version)
        if version is None or version.is_prerelease or (file.is_yanked and not yanked):
            continue
        if file.upload_time is None:
            dateless = True
            continue
        dates[version] = min(dates.get(version, file.upload_time), file.upload_time)
    if not dates:
        why = "tells no dates of its files, by which rungs are ordered" if dateless else "has no final release of it"
        raise UsageError(f"The package index {why}: {library}.")
    return [Release(str(version), dates[version]) for version in sorted(dates)]


def _version(text: str | None) -> Version | None:
    try:
        return Version(text or "")
    except InvalidVersion:
        return None


def one(library: str, version: str, known: Sequence[Release]) -> Release:
    """The release of that version. Raises UnknownName with the nearest that there is."""
    for release in known:
        if _version(release.version) == _version(version) is not None:
            return release
    some = [release.version for release in known]
    shown = sorted(some, key=lambda text: _distance(text, version))[:SHOWN]
    add = f"These are the nearest of {len(some)} releases, {some[0]} to {some[-1]}, without pre-releases and yanked."
    raise UnknownName(f"release of {library}", version, shown, add)


def _distance(known: str, asked: str) -> tuple[float, ...]:
    """Orders releases by how near they are: the leading numbers of a version weigh most."""
    asked_version = _version(asked)
    if asked_version is None:
        return (0.0,)
    pairs = zip((*Version(known).release, 0, 0, 0)[:3], (*asked_version.release, 0, 0, 0)[:3], strict=True)
    return tuple(abs(a - b) for a, b in pairs)


def chosen(library: str, first: str, last: str, only: Sequence[str], had: Sequence[Release] = ()) -> list[Release]:
    """The releases from ``first`` to ``last``, both included, or of these ``only`` some; no ``last``: the newest.
    ``had`` are those that a ladder has already: the index may have yanked some since.

    Raises UsageError for what is no range, and for an ``only`` outside of it.
    """
    listed = {release.version: release for release in (*had, *releases(library))}
    known = sorted(listed.values(), key=lambda release: Version(release.version))
    low = Version(one(library, first, known).version)
    high = Version(one(library, last, known).version) if last else Version(known[-1].version)
    if high < low:
        raise UsageError(f"--from {first} is newer than --to {last or high}: a ladder goes up.")
    inside = [release for release in known if low <= Version(release.version) <= high]
    wanted = {one(library, version, known).version for version in only}
    outside = sorted(wanted - {release.version for release in inside})
    if outside:
        raise UsageError(f"--only names {', '.join(outside)}, outside of --from {low} --to {high}.")
    return [release for release in inside if not wanted or release.version in wanted]
