"""A ladder: the releases of one library, each with its own environment, in a folder that asv can run.

ladder.json      the request, and the rungs (this module; building.py)
repo/            one commit per rung with its lock (repository.py, lockfile.py)
asv.conf.json    asv's configuration, and install-rung, which it calls (asv.py)
results/ runs/   asv's measurements, and every finished run of a rung (asv.py)
checks/          alarms that were run again (confirm.py)
html/            the site (site.py)
"""

import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from filelock import FileLock

from perfsuite.errors import FileError, UnknownName, UsageError
from perfsuite.records import codec
from perfsuite.records.formats import FORMAT
from perfsuite.records.record import Record
from perfsuite.system.paths import code_files, content_hash

HOME = Path(".perfsuite", "ladders")
SUITES = Path(__file__).parent / "suites"
MAKE = "perfsuite ladder run LIBRARY --from VERSION --suite NAME"
LOCK, INHERIT = "lock.txt", "releases.txt"  # in a rung's commit


class Suite(Record, frozen=True, kw_only=True):
    """The needs of a folder of asv benchmarks in a rung's environment: its ``suite.json``.

    ``requires`` are requirements in addition to the ladder's library. ``inherits``: rungs are the running environment
    with other releases. ``noisy`` are regular expressions of benchmarks that are times though neither kind nor unit
    shows it.
    """

    name: str
    about: str
    requires: tuple[str, ...] = ()
    python: str = ""
    inherits: bool = False
    noisy: tuple[str, ...] = ()


class Definition(Record, frozen=True, kw_only=True):
    """The request of ``ladder run``: from ``first`` to ``last``, empty for the newest, or these ``releases``.
    ``python`` is the path of an interpreter; ``dates`` are those of --dates, by ``name==version``.
    """

    library: str
    first: str = ""
    last: str = ""
    releases: tuple[str, ...] = ()
    hold: tuple[str, ...] = ()
    suite: str
    python: str
    inherit: bool = False
    variables: dict[str, str] = msgspec.field(default_factory=dict)
    dates: dict[str, str] = msgspec.field(default_factory=dict)


class Rung(Record, frozen=True, kw_only=True):
    """One commit of the ladder: ``releases`` are ``name==version``. ``failure`` says why it has no environment.

    ``dated_by`` is the source of the date, as in `index.Release`; the packages ``undated`` have no known date.
    """

    name: str
    date: str
    dated_by: str = "index"
    undated: tuple[str, ...] = ()
    releases: tuple[str, ...]
    commit: str = ""
    failure: str = ""


class Ladder(Record, frozen=True, kw_only=True):
    """The content of ``ladder.json``, with the suite as it was when the ladder was built."""

    format: int = FORMAT
    definition: Definition
    suite: Suite
    python_version: str
    rungs: tuple[Rung, ...] = ()

    @property
    def suite_state(self) -> str:
        """A hash of the suite's files: numbers of different states are not compared."""
        return content_hash(code_files(Path(self.definition.suite)))[:16]

    @property
    def about_dates(self) -> str:
        """A note on dates that are not the package index's; empty if all of them are."""
        library, found = self.definition.library, []
        for by, text in (("build", "when its files were built"), ("file", "that of --dates")):
            names = ", ".join(rung.name for rung in self.rungs if rung.dated_by == by)
            found += [f"The date of {library} {names} is {text}."] if names else []
        undated = sorted({name for rung in self.rungs for name in rung.undated})
        if undated:
            found.append(f"Packages without a known date: {', '.join(undated)}. They may be newer than their rung.")
        if found:
            found.insert(0, "The package index has no upload dates, or --dates gives others.")
        return " ".join(found)

    def rung(self, name: str) -> Rung:
        """The rung of that name. Raises UnknownName."""
        for rung in self.rungs:
            if rung.name == name:
                return rung
        library = self.definition.library
        raise UnknownName(
            f"rung of the ladder of {library}", name, (r.name for r in self.rungs), "Add it with --to or --releases."
        )


def suite_folder(name: str) -> Path:
    """The folder of perfsuite's own suite of that name, or of a user's own. Raises UnknownName."""
    known = sorted(path.parent.name for path in SUITES.glob("*/suite.json"))
    folder = SUITES / name if name in known else Path(name)
    if not folder.is_dir():
        raise UnknownName("suite", name, known, "Or give the folder of your own asv benchmarks, with a suite.json.")
    return folder.resolve()


def read_suite(folder: Path) -> Suite:
    """Its ``suite.json``. Raises FileError if it has none."""
    if not (folder / "__init__.py").is_file():
        raise FileError(f"{folder} is not a suite of asv benchmarks: it has no __init__.py.")
    return codec.read(folder / "suite.json", Suite)


def read_ladder(folder: Path) -> Ladder:
    """The ladder in a folder. Raises FileError if there is none."""
    path = folder / "ladder.json"
    if not path.is_file():
        raise FileError(f"{folder} contains no ladder.")
    return codec.read(path, Ladder)


def read_built(folder: Path) -> Ladder:
    """The ladder in a folder, to be run. Raises UsageError if its building ended before the first rung."""
    ladder = read_ladder(folder)
    if not ladder.rungs:
        raise UsageError(f"The ladder in {folder} has no rung yet: perfsuite ladder run {called(folder)}.")
    return ladder


def ladders(home: Path = HOME) -> list[Path]:
    """The folders of the ladders built below ``home``."""
    return sorted(path.parent for path in home.glob("*/ladder.json"))


def find_ladder(text: str, home: Path = HOME) -> Path:
    """A ladder by its name below ``home``, or by its folder; without a text, the only one."""
    known = ladders(home)
    if not text and len(known) == 1:
        return known[0].resolve()
    if not known and not text:
        raise UsageError(f"There is no ladder yet: `{MAKE}` makes one.")
    if not text:
        raise UsageError(f"There are several ladders, so name one: {', '.join(path.name for path in known)}.")
    for folder in (home / text, Path(text)):
        if (folder / "ladder.json").is_file():
            return folder.resolve()
    raise UnknownName("ladder", text, [path.name for path in known], f"Or give its folder. `{MAKE}` makes one.")


def called(folder: Path) -> str:
    """The name with which `find_ladder` finds the ladder in that folder, quoted for a shell."""
    return shlex.quote(folder.name if folder.resolve().parent == HOME.resolve() else str(folder))


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a ladder, in a folder that is removed if it stays empty. Raises UsageError if another process uses it."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path := folder / ".lock")
    try:
        lock.acquire(timeout=0)
    except TimeoutError as error:
        raise UsageError(f"Another perfsuite process uses the ladder in {folder}.") from error
    try:
        yield
    finally:
        if list(folder.iterdir()) == [path]:
            shutil.rmtree(folder)
        lock.release()
