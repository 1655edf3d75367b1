"""Building a ladder, and adding to one: its rungs are dated, locked and committed one by one."""

import json
import shutil
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from pathlib import Path

import msgspec
from packaging.version import Version

from perfsuite.environments import cutoff, index, lockfile
from perfsuite.errors import UsageError
from perfsuite.features.ladder import repository
from perfsuite.features.ladder.ladder import INHERIT, LOCK, Definition, Ladder, Rung, Suite, read_ladder
from perfsuite.records import codec

Tell = Callable[[Rung], None]


def build(folder: Path, ladder: Ladder, tell: Tell, leave: Callable[[Sequence[Rung]], None] = lambda _: None) -> Ladder:
    """Build a ladder that has no rungs yet, or those that the folder lacks. Existing rungs stay, even if the index no
    longer has their releases; newer releases are added after them. ``leave`` gets the releases that are new, but of
    older versions.

    Raises UsageError if the folder contains another ladder, or if a rung can be locked neither now nor later, for
    example without a network.
    """
    definition = ladder.definition
    known = read_ladder(folder).rungs if (folder / "ladder.json").is_file() else ()
    had = [index.Release(rung.name, datetime.fromisoformat(rung.date), by=rung.dated_by) for rung in known]
    reach = (definition.first, definition.last, definition.releases)
    asked = index.chosen(definition.library, *reach, had, definition.dates)
    if definition.library in dict(map(lockfile.pinned, definition.hold)):
        raise UsageError(f"--hold names {definition.library}, whose releases are the rungs.")
    dates = dates_held(definition, ladder.suite)
    wanted = [
        Rung(
            name=release.version,
            date=release.moment.isoformat(),
            dated_by=release.by,
            releases=(f"{definition.library}=={release.version}", *definition.hold),
        )
        for release in asked
    ]
    if (folder / "ladder.json").is_file():
        ladder, wanted, late = _continued(folder, ladder, wanted)
        if late:
            leave(late)
    return add(folder, ladder, wanted, dates, tell)


def dates_held(definition: Definition, suite: Suite) -> list[datetime]:
    """The release dates of the releases that the ladder or the suite pins, yanked or not. Raises UsageError for an
    unknown one.
    """
    known = [*map(lockfile.pinned, definition.hold), *lockfile.exact(suite.requires)]
    found = []
    for name, version in known:
        release = index.one(name, version, index.releases(name, yanked=True), yanked=True)
        found.append(index.dated(name, release, definition.dates).moment)
    return found


def add(
    folder: Path, ladder: Ladder, wanted: Iterable[Rung], dates: Sequence[datetime] = (), tell: Tell = lambda _: None
) -> Ladder:
    """Add the rungs that the ladder does not have yet, writing ``ladder.json`` after each.

    ``dates`` are those of the pinned releases: nothing newer than the newest of them and of the rung is used. A
    rung whose releases conflict is kept with the reason, and tried again as long as no rung is above it. Raises
    UsageError if a lock fails for another reason, which may be temporary.
    """
    rungs = {rung.name: rung for rung in ladder.rungs}
    codec.write(folder / "ladder.json", ladder)
    for rung in wanted:
        below = [known for known in rungs.values() if known.commit]
        if rung.name in rungs and (rungs[rung.name].commit or _above(rung, rungs.values())):
            continue
        try:
            rungs[rung.name] = _make(folder, ladder, rung, below[-1] if below else None, dates)
        except lockfile.Unsolvable as error:
            rungs[rung.name] = msgspec.structs.replace(rung, failure=str(error))
        ladder = msgspec.structs.replace(ladder, rungs=tuple(rungs.values()))
        codec.write(folder / "ladder.json", ladder)
        tell(rungs[rung.name])
    return ladder


def _above(rung: Rung, rungs: Iterable[Rung]) -> bool:
    """Whether a later rung is committed: a commit cannot be inserted below another."""
    names = [known.name for known in rungs if known.commit or known.name == rung.name]
    return names[-1] != rung.name


def _continued(folder: Path, ladder: Ladder, wanted: Sequence[Rung]) -> tuple[Ladder, list[Rung], list[Rung]]:
    """The ladder in the folder under a definition that may extend further up, the wanted rungs, and those that came too
    late: a commit cannot be inserted below another.
    """
    known = read_ladder(folder)
    new, old = ladder.definition, known.definition
    names = {rung.name for rung in known.rungs}
    newest = max(map(Version, names), default=Version("0"))
    late = [rung for rung in wanted if rung.name not in names and Version(rung.name) < newest]
    left_away = names - {rung.name for rung in wanted}
    reach = [name for name in ("last", "releases") if left_away or (late and name == "releases")]
    differing = [name for name in (*_SAME, *reach) if getattr(new, name) != getattr(old, name)]
    differing += ["python"] if ladder.python_version != known.python_version else []
    if differing:
        option = ", ".join(f"--{_SAID.get(name, name)}" for name in differing)
        raise UsageError(
            f"{folder} has a ladder of {old.library} with another {option}; only newer releases can be added to it. "
            "Give the new one its own --folder, or remove that folder."
        )
    if new.python != old.python:
        for environment in (folder / "env", *folder.glob("pairs/*/env")):
            shutil.rmtree(environment, ignore_errors=True)  # asv creates it again: its interpreter may be gone
    return msgspec.structs.replace(ladder, rungs=known.rungs), [rung for rung in wanted if rung not in late], late


_SAME = ("library", "first", "hold", "suite", "inherit", "variables")
_SAID = {"first": "from", "last": "to", "variables": "set"}


def _make(folder: Path, ladder: Ladder, rung: Rung, below: Rung | None, dates: Sequence[datetime]) -> Rung:
    """Lock the rung and commit it."""
    definition, path = ladder.definition, folder / "repo"
    moment = datetime.fromisoformat(rung.date)
    undated: tuple[str, ...] = ()
    files = {"rung.json": json.dumps({"name": rung.name, "releases": rung.releases}, indent=1) + "\n"}
    if definition.inherit:
        files[LOCK] = lockfile.lock([], definition.python, None)
        files[INHERIT] = "\n".join(rung.releases) + "\n"
    else:
        known = repository.show(path, below.commit, LOCK) + "\n" if below else ""
        required = [*rung.releases, *ladder.suite.requires]
        newest = max([moment, *dates])
        if definition.dates or not index.tells_dates(definition.library):
            files[LOCK], undated = cutoff.lock(required, definition.python, newest, known, definition.dates)
        else:
            files[LOCK] = lockfile.lock(required, definition.python, newest, known)
    commit = repository.commit(path, rung.name, rung.date, files, " ".join(rung.releases))
    return msgspec.structs.replace(rung, commit=commit, undated=undated)
