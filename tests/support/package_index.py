"""A package index that a test serves itself, of small wheels that it builds: tests need no network and no registry.

Two kinds are served, as indexes differ: JSON with upload dates (PEP 691 and 700), and HTML without (PEP 503), as many
mirrors have it.
"""

import hashlib
import json
import os
import re
import threading
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import metadata
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

CONFIGURED = re.compile(r"(UV|PIP)_.*|(HTTPS?|ALL)_PROXY", re.IGNORECASE)  # what may name another index
TOOLS = ("asv-runner", "pympler")  # asv's own needs in an environment; pip, too
EMPTY = ("build", "setuptools", "wheel")  # asv, or uv for it, installs them, and nothing here uses them


@dataclass(frozen=True)
class Upload:
    """A file of the index, with the index's facts about it."""

    path: Path
    date: datetime
    yanked: str = ""

    @property
    def name(self) -> str:
        return canonicalize_name(self.path.name.split("-")[0])


def wheel(
    folder: Path,
    name: str,
    version: str,
    *,
    needs: Iterable[str] = (),
    files: Mapping[str, str] | None = None,
    built: datetime = datetime(2020, 2, 2, tzinfo=UTC),
) -> Path:
    """A wheel of these files, by default one module with the version; ``built`` is the time of its members."""
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    texts = dict(files or {f"{module}/__init__.py": f"__version__ = {version!r}\n"})
    required = "".join(f"Requires-Dist: {one}\n" for one in needs)
    texts[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{required}"
    texts[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    texts[f"{info}/RECORD"] = "".join(f"{one},,\n" for one in [*texts, f"{info}/RECORD"])
    path = folder / f"{module}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for one, text in texts.items():
            archive.writestr(zipfile.ZipInfo(one, built.timetuple()[:6]), text)
    return path


def repacked(folder: Path, name: str) -> Path:
    """A wheel of a package as it is installed here."""
    found = metadata.distribution(name)
    files = [one for one in found.files or () if one.suffix != ".pyc" and not str(one).startswith("..")]
    path = folder / f"{name.replace('-', '_')}-{found.version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for one in files:
            if one.name not in ("INSTALLER", "REQUESTED", "direct_url.json"):
                archive.write(one.locate(), str(one))
    return path


@dataclass
class Index:
    """An index at ``address`` while it is served. ``sent`` are the bytes sent of each file, by its name."""

    uploads: list[Upload]
    dates: bool = True
    ranges: bool = True
    address: str = ""
    sent: dict[str, int] = field(default_factory=dict)

    @contextmanager
    def serve(self) -> Iterator["Index"]:
        """On a port of its own."""

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                index.answer(self)

            do_HEAD = do_GET  # noqa: N815 - as http.server calls it

            def log_message(self, *_: object) -> None:
                pass

        index = self
        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            self.address = f"http://127.0.0.1:{server.server_port}/simple/"
            yield self
            server.shutdown()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """A project's page, or a file or the part of one that is asked for."""
        _, kind, name, *_ = [*request.path.split("/"), "", ""]
        uploads = [one for one in self.uploads if name in (one.name, one.path.name)]
        if not uploads:
            request.send_error(404)
        elif kind == "files":
            self._send_file(request, uploads[0].path)
        elif self.dates:
            self._send(request, 200, self._json(name, uploads), "application/vnd.pypi.simple.v1+json")
        else:
            self._send(request, 200, self._html(uploads), "text/html")

    def _send_file(self, request: BaseHTTPRequestHandler, path: Path) -> None:
        content = path.read_bytes()
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", request.headers.get("Range", "")) if self.ranges else None
        first, last = (int(asked[1]), min(int(asked[2]), len(content) - 1)) if asked else (0, len(content) - 1)
        part = content[first : last + 1]
        if request.command == "GET":
            self.sent[path.name] = self.sent.get(path.name, 0) + len(part)
        headers = {"Content-Range": f"bytes {first}-{last}/{len(content)}"} if asked else {}
        headers |= {"Accept-Ranges": "bytes"} if self.ranges else {}
        self._send(request, 206 if asked else 200, part, "application/octet-stream", headers)

    def _send(
        self, request: BaseHTTPRequestHandler, status: int, content: bytes, kind: str, headers: Mapping[str, str] = {}
    ) -> None:
        request.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(content)), **headers}.items():
            request.send_header(name, value)
        request.end_headers()
        if request.command == "GET":
            request.wfile.write(content)

    def _json(self, name: str, uploads: Iterable[Upload]) -> bytes:
        files = [
            {
                "filename": one.path.name,
                "url": f"/files/{one.path.name}",
                "hashes": {"sha256": hashlib.sha256(one.path.read_bytes()).hexdigest()},
                "upload-time": f"{one.date:%Y-%m-%dT%H:%M:%SZ}",
                "yanked": one.yanked or False,
            }
            for one in uploads
        ]
        return json.dumps({"meta": {"api-version": "1.1"}, "name": name, "files": files}).encode()

    def _html(self, uploads: Iterable[Upload]) -> bytes:
        links = ""
        for one in uploads:
            yanked = f' data-yanked="{one.yanked}"' if one.yanked else ""
            links += f'<a href="/files/{one.path.name}"{yanked}>{one.path.name}</a>\n'
        return f"<!DOCTYPE html><html><body>\n{links}</body></html>".encode()

    def configure(self, patch: pytest.MonkeyPatch, cache: Path) -> None:
        """Make it the only index that pip and uv know, whatever the user's environment and files name."""
        for name in filter(CONFIGURED.fullmatch, list(os.environ)):
            patch.delenv(name)
        for name, value in {
            "UV_DEFAULT_INDEX": self.address,
            "UV_NO_CONFIG": "1",
            "UV_CACHE_DIR": str(cache),
            "PIP_INDEX_URL": self.address,
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }.items():
            patch.setenv(name, value)


VERSIONS = """
class Version:
    def __init__(self, text):
        self.numbers = tuple(map(int, text.split(".")))
"""
LEGACY = """
class LegacyVersion(Version):
    pass
"""


def packages(folder: Path) -> list[Upload]:
    """The packages of the ladders' tests: releases like those of packaging, what they need, and what asv needs."""
    found = []

    def add(name: str, version: str, uploaded: str, needs: Iterable[str] = (), text: str = "") -> None:
        date = datetime.fromisoformat(f"{uploaded}T12:34:56+00:00")
        files = {f"{name}/__init__.py": "", f"{name}/version.py": text} if text else None
        found.append(Upload(wheel(folder, name, version, needs=needs, files=files, built=date), date))

    add("packaging", "21.3", "2021-11-18", ["pyparsing!=3.0.5,>=2.0.2"], VERSIONS + LEGACY)
    add("packaging", "22.0", "2022-12-07", [], VERSIONS)
    add("packaging", "23.0", "2023-01-08", [], VERSIONS)
    for name, releases in {
        "pyparsing": {"3.0.4": "2021-10-30", "3.0.5": "2021-11-07", "3.0.6": "2021-11-12", "3.0.7": "2022-01-15"},
        "six": {"1.15.0": "2020-05-21", "1.16.0": "2021-05-05", "1.17.0": "2024-12-04"},
        "toml": {"0.10.2": "2020-11-01"},
        **{name: {"1.0": "2019-01-01"} for name in EMPTY},
    }.items():
        for version, uploaded in releases.items():
            add(name, version, uploaded)
    tools = [repacked(folder, name) for name in TOOLS]
    return [*found, *(Upload(path, datetime(2025, 1, 1, tzinfo=UTC)) for path in [*tools, pip(folder)])]


def pip(folder: Path) -> Path:
    """The wheel of pip: with it asv installs into environments."""
    try:
        return repacked(folder, "pip")
    except metadata.PackageNotFoundError:  # as in an environment that uv made
        import ensurepip

        return next(Path(ensurepip.__file__).parent.glob("_bundled/pip-*.whl"))
