"""How what is installed differs between two runs, and how the runs of one file share its record.

Only distributions whose code a step of either side can run are compared (rank/installed.py), and only if both sides
have a record: an older baseline is compared by all that ranks loaded, or by the versions that it has. Kinds

    release   another version, of the index: a trial can install the older one
    python    another minor version
    kernels   other kernels of the CPU
    origin    the baseline's is no release of an index, or the same build of torch comes from elsewhere now
    build     another build of the same release, such as torch for another CUDA
    library   another version of what torch loads by its path, such as NVIDIA's wheels
    outside   a file of the user's outside of the repository
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

import msgspec
from packaging.utils import canonicalize_name

from perfsuite.compare.scope import changes
from perfsuite.records.baseline import TimedRun
from perfsuite.records.change import Change, ChangeKind
from perfsuite.records.installed import Installed
from perfsuite.records.measurement import KERNELS, Measurement, release_of, releases
from perfsuite.records.packed import same_content, unpack

Sides = tuple[ChangeKind, dict[str, str], dict[str, str]]  # kind of change, names before and names after
KINDS = (ChangeKind.RELEASE, ChangeKind.ORIGIN, ChangeKind.BUILD, ChangeKind.LIBRARY, ChangeKind.OUTSIDE)
BY_NAME = {"python": ChangeKind.PYTHON, KERNELS: ChangeKind.KERNELS}  # what is listed with the releases and is none


def packages(old: TimedRun | Measurement, new: Measurement) -> list[Sides]:
    """Every difference, by kind: the texts of the names on both sides, a name that a side lacks left out."""
    before, after = installed_of(old), installed_of(new)
    versions = releases(old.versions), releases(new.versions)
    differing: dict[ChangeKind, tuple[dict[str, str], dict[str, str]]] = {kind: ({}, {}) for kind in KINDS}
    differing[ChangeKind.RELEASE] = versions
    if before.modules and after.modules:
        titles = {canonicalize_name(name): name for name in [*versions[0], *versions[1]]}
        known = before.in_steps and after.in_steps
        for name in sorted({*before.in_steps, *after.in_steps} if known else {*before.loaded, *after.loaded}):
            title = titles.get(canonicalize_name(name), name)
            kind, texts = _difference(name, before, after)
            for version, side, text in zip(versions, differing[kind], texts, strict=True):
                version.pop(title, None)
                if text:
                    side[title] = text
        differing[ChangeKind.OUTSIDE] = _outside(before, after)
    for name, kind in BY_NAME.items():
        differing[kind] = ({}, {})
        for side, version in zip(differing[kind], versions, strict=True):
            side |= {name: text} if (text := version.pop(name, "")) else {}
    return [(kind, *sides) for kind, sides in differing.items()]


def changed_versions(old: Mapping[str, str], new: Mapping[str, str]) -> list[Change]:
    """The changes of two measurements' versions."""
    return [msgspec.structs.replace(change, kind=BY_NAME.get(change.name, change.kind)) for change in changes(old, new)]


def _difference(name: str, before: Installed, after: Installed) -> tuple[ChangeKind, tuple[str, str]]:
    """The kind of the difference and the texts of both sides, empty for a side without the distribution."""
    old, new = before.all.get(name, ""), after.all.get(name, "")
    origins = before.origins.get(name, ""), after.origins.get(name, "")
    builds = before.builds.get(name, ""), after.builds.get(name, "")
    short = release_of(old), release_of(new)
    if not all(builds):  # a rank that failed early does not know it
        builds = "", ""
    exact = _exact(old, origins[0], builds[0]), _exact(new, origins[1], builds[1])
    if exact[0] == exact[1]:
        return ChangeKind.RELEASE, short
    if origins[0] or (short[0] == short[1] and origins[1] and all(builds)):
        return ChangeKind.ORIGIN, exact
    if short[0] == short[1] and not origins[1]:
        return ChangeKind.BUILD, exact
    imported = name in {*before.modules, *after.modules}
    return ChangeKind.RELEASE if imported else ChangeKind.LIBRARY, (short[0], _exact(short[1], origins[1]))


def _exact(*facts: str) -> str:
    """``2.13.0+cpu@cf30153c4c13``."""
    return "@".join(filter(None, facts))


def _outside(before: Installed, after: Installed) -> tuple[dict[str, str], dict[str, str]]:
    """The hashes on both sides of each file that differs; of a package with several, or of a folder of data, one over
    all of them. Data that one side alone has, by an absolute path, may lie elsewhere on the other machine.
    """
    old, new = unpack(before.outside), unpack(after.outside)
    paths = sorted({*old, *new} - {path for path in old.keys() ^ new.keys() if path.startswith("/")})
    groups: dict[str, list[str]] = {}
    for path in paths:
        if not same_content(old.get(path, ""), new.get(path, "")):
            place = PurePosixPath(path)
            groups.setdefault(str(place.parent) if place.is_absolute() else place.parts[0], []).append(path)
    sides: tuple[dict[str, str], dict[str, str]] = ({}, {})
    for top, paths in groups.items():
        title = top if len(paths) > 1 else paths[0]
        for side, hashes in zip(sides, (old, new), strict=True):
            lines = [f"{path} {hashes[path]}" for path in paths if path in hashes]
            if lines:
                side[title] = _digest("\n".join(lines))[:8] if len(paths) > 1 else hashes[paths[0]].partition(".")[0]
    return sides


def installed_of(one: TimedRun | Measurement) -> Installed:
    """What was installed; an empty record if that is not known."""
    return one.installed if isinstance(one.installed, Installed) else Installed()


def shared(runs: Sequence[TimedRun], first: Installed | None = None) -> list[TimedRun]:
    """The runs as a file has them, after a record of ``first``: each record once, and its digest in all others."""
    seen, stored = {_digest_of(first)} if first else set(), []
    for run in runs:
        digest = _digest_of(run.installed) if isinstance(run.installed, Installed) else ""
        stored.append(msgspec.structs.replace(run, installed=digest) if digest in seen else run)
        seen.add(digest)
    return stored


def whole(runs: Sequence[TimedRun], first: Installed | None = None) -> list[TimedRun]:
    """The runs of a file, each with its record."""
    seen, restored = {_digest_of(first): first} if first else {}, []
    for run in runs:
        record = run.installed
        if isinstance(record, Installed):
            seen[_digest_of(record)] = record
            restored.append(run)
        else:
            restored.append(msgspec.structs.replace(run, installed=seen[record]) if record in seen else run)
    return restored


def _digest_of(record: Installed) -> str:
    return _digest(msgspec.json.encode(record, order="deterministic").decode())[:12]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
