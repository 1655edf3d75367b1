"""A ladder: the releases of one library, each with an environment of its own, in a folder that asv can run.

ladder.json      what was asked for, and the rungs (this module)
repo/            one commit per rung with its lock (repository.py, locks.py)
asv.conf.json    asv's configuration, and install-rung, which it calls (asv.py)
results/ runs/   what asv measured, and every run of a rung as it ended (asv.py)
checks/          alarms that were run again (confirm.py)
html/            the site (site.py)
"""

import hashlib
import json
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import msgspec
from filelock import FileLock
from packaging.version import Version

from perfsuite import codec
from perfsuite.errors import FileError, UnknownName, UsageError
from perfsuite.history import index, locks, repository
from perfsuite.launch.machine import gpus
from perfsuite.records import Record

FORMAT = 1
HOME = Path(".perfsuite", "ladders")
SUITES = Path(__file__).parent / "suites"
LOCK, INHERIT = "lock.txt", "releases.txt"  # in a rung's commit


class Suite(Record, frozen=True, kw_only=True):
    """What a folder of asv benchmarks needs of a rung's environment: its ``suite.json``.

    ``requires`` are requirements beside the ladder's library. ``inherits``: rungs are the running environment with
    other releases. ``noisy`` are regular expressions of benchmarks that are times though neither kind nor unit says so.
    """

    name: str
    about: str
    requires: tuple[str, ...] = ()
    python: str = ""
    inherits: bool = False
    noisy: tuple[str, ...] = ()


class Definition(Record, frozen=True, kw_only=True):
    """What ``ladder build`` was asked for. ``last`` is empty for the newest, ``python`` the path of an interpreter."""

    library: str
    first: str
    last: str = ""
    only: tuple[str, ...] = ()
    hold: tuple[str, ...] = ()
    suite: str
    python: str
    inherit: bool = False
    stand_ins: bool = False
    variables: dict[str, str] = msgspec.field(default_factory=dict)


class Rung(Record, frozen=True, kw_only=True):
    """One commit of the ladder: ``releases`` are ``name==version``. ``failure`` says why it has no environment."""

    name: str
    date: str
    releases: tuple[str, ...]
    commit: str = ""
    failure: str = ""


class Ladder(Record, frozen=True, kw_only=True):
    """The whole of ``ladder.json``, with the suite as it was when the ladder was built. Format 1: 2026-11, first."""

    format: int = FORMAT
    definition: Definition
    suite: Suite
    python_version: str
    rungs: tuple[Rung, ...] = ()

    @property
    def suite_state(self) -> str:
        """A hash of the suite's files: numbers of another state of it are not compared."""
        files = sorted(Path(self.definition.suite).rglob("*.py"))
        return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()[:16]

    def rung(self, name: str) -> Rung:
        """The rung of that name. Raises UnknownName."""
        for rung in self.rungs:
            if rung.name == name:
                return rung
        library = self.definition.library
        raise UnknownName(
            f"rung of the ladder of {library}", name, (r.name for r in self.rungs), "Build it with --only or --to."
        )


def suite_folder(name: str) -> Path:
    """The folder of perfsuite's own suite of that name, or of a user's own. Raises UnknownName."""
    known = sorted(path.parent.name for path in SUITES.glob("*/suite.json"))
    folder = SUITES / name if name in known else Path(name)
    if not folder.is_dir():
        raise UnknownName("suite", name, known, "Or give the folder of your own asv benchmarks, with a suite.json.")
    return folder.resolve()


def read_suite(folder: Path) -> Suite:
    """Its ``suite.json``. Raises FileError where it has none."""
    if not (folder / "__init__.py").is_file():
        raise FileError(f"{folder} is no suite of asv benchmarks: it has no __init__.py.")
    return codec.read(folder / "suite.json", Suite)


def read_ladder(folder: Path) -> Ladder:
    """The ladder in a folder. Raises FileError where there is none."""
    path = folder / "ladder.json"
    if not path.is_file():
        raise FileError(f"{folder} holds no ladder: `perfsuite ladder list` shows those that there are.")
    codec.refuse_newer(path.read_bytes(), str(path), FORMAT)
    return codec.read(path, Ladder)


def read_built(folder: Path) -> Ladder:
    """The ladder in a folder, to be run. Raises UsageError where its building ended before the first rung."""
    ladder = read_ladder(folder)
    if not ladder.rungs:
        raise UsageError(f"The ladder in {folder} has no rung yet: run the same `perfsuite ladder build` again.")
    return ladder


def ladders(home: Path = HOME) -> list[Path]:
    """The folders of the ladders built below ``home``."""
    return sorted(path.parent for path in home.glob("*/ladder.json"))


def find_ladder(text: str, home: Path = HOME) -> Path:
    """A ladder by its name below ``home``, or by its folder; without a text the only one there is."""
    known = ladders(home)
    if not text and len(known) == 1:
        return known[0].resolve()
    if not text:
        names = ", ".join(path.name for path in known) or "none is built yet: `perfsuite ladder build` makes one"
        raise UsageError(f"Which ladder? Known: {names}.")
    for folder in (home / text, Path(text)):
        if (folder / "ladder.json").is_file():
            return folder.resolve()
    raise UnknownName("ladder", text, [path.name for path in known], "Or give its folder.")


def called(folder: Path) -> str:
    """How `find_ladder` finds the ladder in that folder, as a shell's word."""
    return shlex.quote(folder.name if folder.resolve().parent == HOME.resolve() else str(folder))


@contextmanager
def held_by(folder: Path) -> Iterator[None]:
    """Work on a ladder alone, in a folder that is removed if it stays empty. Raises UsageError where another process
    works in it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path := folder / ".lock")
    try:
        lock.acquire(timeout=0)
    except TimeoutError as error:
        raise UsageError(f"Another perfsuite works on the ladder in {folder}.") from error
    try:
        yield
    finally:
        if list(folder.iterdir()) == [path]:
            shutil.rmtree(folder)
        lock.release()


Told = Callable[[Rung], None]


def build(
    folder: Path,
    definition: Definition,
    suite: Suite,
    python_version: str,
    tell: Told,
    leave: Callable[[Sequence[Rung]], None] = lambda _: None,
) -> Ladder:
    """Build the ladder, or what is missing of it: rungs that are there stay, also where the index has them no longer,
    and newer releases come behind them. ``leave`` is told of the releases that are new, but of older versions.

    Raises UsageError where the folder holds another ladder, and where a rung can be locked neither now nor never, as
    without a network.
    """
    known = read_ladder(folder).rungs if (folder / "ladder.json").is_file() else ()
    had = [index.Release(rung.name, datetime.fromisoformat(rung.date)) for rung in known]
    asked = index.chosen(definition.library, definition.first, definition.last, definition.only, had)
    if definition.library in dict(map(locks.pinned, definition.hold)):
        raise UsageError(f"--hold names {definition.library}, whose releases are the rungs.")
    dates = dates_held(definition, suite)
    wanted = [
        Rung(
            name=release.version,
            date=release.date.isoformat(),
            releases=(f"{definition.library}=={release.version}", *definition.hold),
        )
        for release in asked
    ]
    ladder = Ladder(definition=definition, suite=suite, python_version=python_version)
    if (folder / "ladder.json").is_file():
        ladder, wanted, late = _continued(folder, ladder, wanted)
        if late:
            leave(late)
    return add(folder, ladder, wanted, dates, tell)


def dates_held(definition: Definition, suite: Suite) -> list[datetime]:
    """When the releases came out that are held, or that the suite pins, yanked or not. Raises UsageError for what is
    none.
    """
    known = [*map(locks.pinned, definition.hold), *locks.exact(suite.requires)]
    return [index.one(name, version, index.releases(name, yanked=True)).date for name, version in known]


def add(
    folder: Path, ladder: Ladder, wanted: Iterable[Rung], dates: Sequence[datetime] = (), tell: Told = lambda _: None
) -> Ladder:
    """Add the rungs that the ladder does not have yet, writing ``ladder.json`` after each.

    ``dates`` are those of what is held, or pinned by the suite: nothing newer than the newest of them and of the rung
    is taken. A rung whose releases cannot be had together is kept with the reason, and tried again as long as no rung
    stands above it. Raises UsageError where a lock fails for another reason, which may pass.
    """
    rungs = {rung.name: rung for rung in ladder.rungs}
    _write(folder, ladder)
    for rung in wanted:
        below = [known for known in rungs.values() if known.commit]
        if rung.name in rungs and (rungs[rung.name].commit or _above(rung, rungs.values())):
            continue
        try:
            rungs[rung.name] = _make(folder, ladder, rung, below[-1] if below else None, dates)
        except locks.Unsolvable as error:
            rungs[rung.name] = _with(rung, failure=str(error))
        ladder = msgspec.structs.replace(ladder, rungs=tuple(rungs.values()))
        _write(folder, ladder)
        tell(rungs[rung.name])
    return ladder


def _above(rung: Rung, rungs: Iterable[Rung]) -> bool:
    """Whether a rung behind this one is committed: a commit cannot be put below another."""
    names = [known.name for known in rungs if known.commit or known.name == rung.name]
    return names[-1] != rung.name


def _continued(folder: Path, ladder: Ladder, wanted: Sequence[Rung]) -> tuple[Ladder, list[Rung], list[Rung]]:
    """The ladder in the folder under a definition that may reach further up, what is wanted of it, and what came too
    late for it: a commit cannot be put below another.
    """
    known = read_ladder(folder)
    new, old = ladder.definition, known.definition
    names = {rung.name for rung in known.rungs}
    newest = max(map(Version, names), default=Version("0"))
    late = [rung for rung in wanted if rung.name not in names and Version(rung.name) < newest]
    left_away = names - {rung.name for rung in wanted}
    reach = [name for name in ("last", "only") if left_away or (late and name == "only")]
    differing = [name for name in (*_SAME, *reach) if getattr(new, name) != getattr(old, name)]
    differing += ["python"] if ladder.python_version != known.python_version else []
    if differing:
        option = ", ".join(f"--{_SAID.get(name, name)}" for name in differing)
        raise UsageError(
            f"{folder} holds a ladder of {old.library} with another {option}; only newer releases can be added to it. "
            "Give the new one a --folder of its own, or remove that folder."
        )
    if new.python != old.python:
        for environment in (folder / "env", *folder.glob("pairs/*/env")):
            shutil.rmtree(environment, ignore_errors=True)  # asv makes it anew: its interpreter may be gone
    return msgspec.structs.replace(ladder, rungs=known.rungs), [rung for rung in wanted if rung not in late], late


_SAME = ("library", "first", "hold", "suite", "inherit", "stand_ins", "variables")
_SAID = {"first": "from", "last": "to", "stand_ins": "stand-ins", "variables": "set"}


def _make(folder: Path, ladder: Ladder, rung: Rung, below: Rung | None, dates: Sequence[datetime]) -> Rung:
    """Lock the rung and commit it."""
    definition, path = ladder.definition, folder / "repo"
    moment = datetime.fromisoformat(rung.date)
    files = {"rung.json": json.dumps({"name": rung.name, "releases": rung.releases}, indent=1) + "\n"}
    if definition.inherit:
        files[LOCK] = locks.lock([], definition.python, None)
        files[INHERIT] = "\n".join(rung.releases) + "\n"
    else:
        known = repository.show(path, below.commit, LOCK) + "\n" if below else ""
        required = [*rung.releases, *ladder.suite.requires]
        files[LOCK] = locks.lock(required, definition.python, max([moment, *dates]), known)
        if definition.stand_ins:
            files[LOCK] = locks.with_files(files[LOCK], _stand_ins(files[LOCK], definition.python))
    commit = repository.commit(path, rung.name, rung.date, files, " ".join(rung.releases))
    return _with(rung, commit=commit)


def _stand_ins(lock: str, python: str) -> list[Path]:
    """The stand-in CUDA wheels for the torch of a lock; none where it needs none."""
    if gpus():
        raise UsageError("--stand-ins are for machines without a GPU, and this one has one: leave it out.")
    locked = locks.versions(lock)
    if "torch" not in locked or not any(name.startswith("nvidia-") for name in locked):
        return []
    from perfsuite.history.standins import stand_ins

    return sorted(stand_ins(locked["torch"], python=python).glob("*.whl"))


def _with(rung: Rung, commit: str = "", failure: str = "") -> Rung:
    return msgspec.structs.replace(rung, commit=commit, failure=failure)


def _write(folder: Path, ladder: Ladder) -> None:
    codec.write(folder / "ladder.json", ladder)
