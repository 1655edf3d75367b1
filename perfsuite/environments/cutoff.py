"""The lock of a rung as of a date, if the index has no upload dates: then uv cannot exclude newer releases.

uv resolves without a date. For each package that is newer than the date by its known date, the newest older release
becomes the upper limit, and uv resolves again, until none is newer. A package without a release by then is excluded.

"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from packaging.utils import canonicalize_name
from packaging.version import Version

from perfsuite.environments import index, lockfile

_END = datetime.max.replace(tzinfo=UTC)


def lock(
    requirements: Sequence[str], python: str, newest: datetime, below: str, given: Mapping[str, str]
) -> tuple[str, tuple[str, ...]]:
    """The lock, and its packages without a known date: they may be newer. ``given`` are dates of --dates.

    Raises Unsolvable and UsageError as `lockfile.lock` does.
    """
    free = {*map(canonicalize_name, lockfile.RUNNER), *dict(lockfile.exact(requirements))}
    limits: dict[str, str] = {}
    while True:
        text = lockfile.lock(requirements, python, None, below, list(limits.values()))
        late, undated = {}, []
        for name, version in lockfile.versions(text).items():
            if name in free:
                continue
            date = _date(name, version, given)
            if date is None:
                undated.append(name)
            elif date > newest + lockfile.MARGIN:
                late[name] = version
        if not late:
            return text, tuple(sorted(undated))
        limits |= {name: f"{name}{_limit(name, version, newest, given)}" for name, version in late.items()}


def _date(name: str, version: str, given: Mapping[str, str]) -> datetime | None:
    """None if unknown."""
    known = {Version(release.version): release for release in index.releases(name, yanked=True)}
    release = known.get(Version(version), index.Release(version, None))  # a pre-release does not count
    return index.try_dated(name, release, given).date


def _limit(name: str, version: str, newest: datetime, given: Mapping[str, str]) -> str:
    """``<=`` and the newest release below this version that existed by then; ``<0`` if there was none.

    It is found by bisection: dates rise with versions except for late patches, which the next resolution finds again. A
    release without a date counts as too new, unless no release is known to be old enough.
    """

    def date(one: index.Release) -> datetime | None:
        return index.try_dated(name, one, given).date

    older = [release for release in index.releases(name) if Version(release.version) < Version(version)]
    at = bisect_right(older, newest + lockfile.MARGIN, key=lambda one: date(one) or _END)
    undated = (one for one in reversed(older) if date(one) is None)
    found = older[at - 1] if at else next(undated, None)
    return f"<={found.version}" if found else "<0"
