"""Release dates if the package index has no upload dates, as with many mirrors: from a file that the user gives, or
from the release's own files, whose members have their build times.

Only the member list of a wheel is read, by HTTP range requests, not its gigabytes. Build tools for reproducible files
give all members a constant time, at midnight (1980-01-01, 2016-01-01, 2020-02-02) or cargo's: such a time is not a
date.
"""

import csv
import io
import tarfile
import zipfile
from datetime import UTC, datetime, time
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from packaging.utils import canonicalize_name, canonicalize_version
from packaging.version import InvalidVersion, Version

from perfsuite.errors import FileError

FIELDS = ("name", "version", "date")
WHOLE_BYTES = 32 * 2**20  # a file that cannot be read in parts is downloaded up to this size
BLOCK_BYTES = 2**18  # read at once from a remote file: most member lists are smaller
CARGO = datetime(2006, 7, 24, 1, 21, 28, tzinfo=UTC)
_SUFFIXES = (".whl", ".zip", ".tar.gz", ".tar.bz2")


def read_dates(path: Path) -> dict[str, str]:
    """``name==version`` and date from a file of ``--dates``: CSV lines with name, version and date.

    Raises FileError with the wrong line.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"--dates {path} cannot be read: {error}.") from error
    found = {}
    for number, row in enumerate(csv.reader(text.splitlines()), 1):
        values, where = [value.strip() for value in row], f"line {number}"
        if not any(values) or tuple(values) == FIELDS:
            continue
        if len(values) != len(FIELDS) or not all(values):
            raise FileError(f"{path}, {where}: give name, version and date, as in numpy,1.24.0,2022-12-18.")
        name, version, date = values
        try:
            moment = datetime.fromisoformat(date)
        except ValueError as error:
            raise FileError(f"{path}, {where}: {date!r} is not a date: write YYYY-MM-DD.") from error
        try:
            key = key_of(name, version)
        except InvalidVersion as error:
            raise FileError(f"{path}, {where}: {version!r} is not a version.") from error
        found[key] = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).isoformat()
    return found


def key_of(name: str, version: str) -> str:
    """``name==version``, the same for all spellings."""
    return f"{canonicalize_name(name)}=={canonicalize_version(Version(version))}"


@cache
def of_files(urls: tuple[str, ...]) -> datetime | None:
    """The build time of the first of these files, from its own members; None if none has one."""
    from requests import Session

    with Session() as session:
        for url in sorted(urls, key=lambda url: not url.endswith(".whl")):  # a part of a wheel is enough
            try:
                found = _built(session, url)
            except (OSError, EOFError, ValueError, LookupError, zipfile.BadZipFile, tarfile.TarError):
                continue  # it cannot be read, is not an archive, or has no valid times; requests' errors are OSErrors
            if found is not None:
                return found
    return None


def path_of(url: str) -> Path | None:
    """The path of a ``file:`` address; None for any other."""
    parts = urlsplit(url)
    return Path(url2pathname(parts.path)) if parts.scheme == "file" else None


def _built(session: Any, url: str) -> datetime | None:
    """The newest time of the members."""
    if not url.endswith(_SUFFIXES):
        return None
    stream = _opened(session, url)
    if stream is None:
        return None
    if url.endswith((".whl", ".zip")):
        with zipfile.ZipFile(stream) as archive:
            times = [datetime(*member.date_time, tzinfo=UTC) for member in archive.infolist() if _sound(member)]
    else:
        with tarfile.open(fileobj=stream) as packed:
            times = [datetime.fromtimestamp(member.mtime, UTC) for member in packed]
    newest = max(times, default=None)
    return None if newest is None or newest.time() == time.min or newest == CARGO else newest


def _sound(member: zipfile.ZipInfo) -> bool:
    """Whether the member's time is valid: a tool may have written a month of 0."""
    _, month, day, *_ = member.date_time
    return month > 0 and day > 0


def _opened(session: Any, url: str) -> io.BufferedIOBase | None:
    """The file, a remote one read in parts; if that is not possible the whole file, and None if it is too large."""
    if (path := path_of(url)) is not None:
        return path.open("rb")
    first = session.get(url, headers={"Range": "bytes=0-0", "Accept-Encoding": "identity"}, timeout=60, stream=True)
    with first:
        first.raise_for_status()
        if first.status_code == 206:
            size = int(first.headers["Content-Range"].rpartition("/")[2])
            if url.endswith((".whl", ".zip")):
                return io.BufferedReader(_Remote(session, url, size), BLOCK_BYTES)
        else:
            size = int(first.headers.get("Content-Length", WHOLE_BYTES + 1))
            if size <= WHOLE_BYTES:
                return io.BytesIO(first.content)
    if size > WHOLE_BYTES:
        return None
    whole = session.get(url, headers={"Accept-Encoding": "identity"}, timeout=60)
    whole.raise_for_status()
    return io.BytesIO(whole.content)


class _Remote(io.RawIOBase):
    """A file behind a URL that serves ranges."""

    def __init__(self, session: Any, url: str, size: int) -> None:
        self.session, self.url, self.size, self.at = session, url, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self.at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self.at, io.SEEK_END: self.size}[whence]
        return self.at

    def readinto(self, buffer: Any) -> int:
        last = min(self.at + len(buffer), self.size) - 1
        if last < self.at:
            return 0
        part = self.session.get(self.url, headers={"Range": f"bytes={self.at}-{last}"}, timeout=60)
        part.raise_for_status()
        if part.status_code != 206:
            raise zipfile.BadZipFile(f"{self.url} no longer serves parts.")
        buffer[: len(part.content)] = part.content
        self.at += len(part.content)
        return len(part.content)
