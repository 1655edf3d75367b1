"""Which releases an upgrade tries: from the words of the command to changes, old release -> new release."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from perfsuite.catalog.cell import Cell
from perfsuite.environments import index
from perfsuite.environments.requirements import constraints, pinned, release_of
from perfsuite.errors import UnknownName, UsageError
from perfsuite.features.prove.compatibility.proofs import LIBRARIES
from perfsuite.records import measurement
from perfsuite.records.change import Change
from perfsuite.system.machine import version_of

TORCH = "torch"  # its default build needs gigabytes of CUDA, so it is tried only if it is named
Pins = Mapping[str, str]  # a version or an address, by name


def libraries_of(cells: Iterable[Cell]) -> list[str]:
    """The installed packages that the cells train with, those of their strategies and models included."""
    names = [name for cell in cells for name in (*cell.strategy.packages, *cell.model.packages)]
    return [name for name in dict.fromkeys(map(canonicalize_name, [*LIBRARIES, *names])) if _installed(name)]


def changes_of(
    words: Sequence[str], since: Sequence[str], libraries: Sequence[str]
) -> tuple[list[Change], Pins, list[str], Pins]:
    """What to try, what both sides have that is not installed, what was left out and why, and what is installed of all
    this. ``words`` are requirements, names of libraries (their newest release) or files of constraints. ``since`` are
    those of the old side, without any what is installed. Without words, the new side is what is installed if ``since``
    is given, else the newest of all ``libraries``. With words, only these change.

    Raises UsageError if nothing that is named differs, or for a package that is not installed.
    """
    notes: list[str] = []
    old, new = (_pins(texts, libraries, notes) for texts in (since, words))
    if not words and not since:
        new = _newest_of([name for name in libraries if name != TORCH], notes)
        notes += [f"{TORCH} is tried only if it is named: perfsuite upgrade {TORCH}==VERSION"]
    here = {name: _installed(name) for name in {**old, **new}}
    for name, version in here.items():
        if not version:
            _refuse_absent(name, libraries)
    sides = {name: (old.get(name, here[name]), new.get(name, old.get(name, "") if words else "")) for name in here}
    sides = {name: (before, after or here[name]) for name, (before, after) in sides.items()}
    for name in new.keys() - old.keys() if since else ():
        _refuse_older(name, *sides[name])
    changes = [Change(name, *both) for name, both in sides.items() if not _equal(*both)]
    same = {name: before for name, (before, after) in sides.items() if _equal(before, after)}
    held = {name: release for name, release in same.items() if not _equal(release, here[name])}
    if not changes and (words or since):
        named = ", ".join(f"{name} {before}" for name, (before, _) in sides.items())
        raise UsageError(f"There is nothing to try: both sides have {named}.")
    return changes, held, notes, here


def _refuse_absent(name: str, libraries: Sequence[str]) -> None:
    """Raise UnknownName for a misspelt library, else UsageError."""
    if get_close_matches(name, libraries, n=1):
        raise UnknownName("installed library", name, libraries, "Others can be named, if they are installed.")
    raise UsageError(f"{name} is not installed here, so it cannot be upgraded: pip install {name}.")


def _refuse_older(name: str, before: str, after: str) -> None:
    """Raise UsageError for a word that should probably belong to the old side: ``--from`` takes one."""
    if "://" not in before + after and Version(after) < Version(before):
        raise UsageError(
            f"{name} {after} is older than {before}, the old side's: write --from before each of its releases, as in "
            f"--from {name}=={after}."
        )


def why_unknown(change: Change) -> str:
    """The sentence that the package index does not have a release, with the nearest ones; empty if it has both, or if
    it does not answer.
    """
    for version in (change.before, change.after):
        try:
            known = (
                [] if "://" in version or Version(version).is_prerelease else index.releases(change.name, yanked=True)
            )
        except UsageError:
            return ""
        if known:
            try:
                index.one(change.name, version.partition("+")[0], known, yanked=True)
            except UsageError as error:
                return str(error)
    return ""


def between(change: Change) -> list[str]:
    """The final releases between the two, in order; empty if the index does not say."""
    try:
        low, high = sorted((Version(change.before), Version(change.after)))
        known = index.releases(change.name)
    except (UsageError, ValueError):
        return []
    return [one.version for one in known if low < Version(one.version) < high]


def _pins(texts: Sequence[str], libraries: Sequence[str], notes: list[str]) -> dict[str, str]:
    """The releases of these words, which come before those of files; what a file has in addition is noted. Raises
    UsageError for two of one package.
    """
    of_files: dict[str, str] = {}
    of_words: dict[str, str] = {}
    for text in texts:
        found = of_files if Path(text).is_file() else of_words
        for name, release in _pins_of(text, libraries, notes):
            if not _equal(found.setdefault(name, release), release):
                raise UsageError(f"{name} {found[name]} and {name} {release} contradict each other: name one of them.")
    return of_files | of_words


def _pins_of(text: str, libraries: Sequence[str], notes: list[str]) -> Iterator[tuple[str, str]]:
    """Those of one word."""
    if Path(text).is_file():
        yield from _of_file(Path(text), libraries, notes)
    elif "=" in text or "@" in text:
        yield from (_pin(pinned(part)) for part in ([text] if "@" in text else text.split()))
    else:
        name = canonicalize_name(text)
        if Path(text).suffix or "/" in text:
            raise UsageError(f"The file {text} does not exist.")
        if not _installed(name):
            raise UnknownName("installed library", text, libraries, "Or give a file, or a release: NAME==VERSION.")
        yield name, _newest(name)


def _newest(name: str) -> str:
    """Its newest final release, or the installed one if that is newer. Raises UsageError if the index has none."""
    return max(index.releases(name)[-1].version, _installed(name), key=Version)


def _newest_of(names: Sequence[str], notes: list[str]) -> dict[str, str]:
    """The same of all that the index has. Raises UsageError if that is none."""
    found, problems = {}, []
    for name in names:
        try:
            found[name] = _newest(name)
        except UsageError as error:
            problems.append(error)
    if problems and not found:
        raise problems[0]
    notes += map(str, problems)
    return found


def _of_file(path: Path, libraries: Sequence[str], notes: list[str]) -> Iterable[tuple[str, str]]:
    """A file pins everything; what the cells do not train with stays as it is here."""
    pins = dict(map(_pin, constraints(path)))
    if TORCH in pins and not _equal(pins[TORCH], _installed(TORCH)):
        notes.append(f"{TORCH} {pins[TORCH]} of {path} is left out: to try it, name it: {TORCH}=={pins[TORCH]}")
    others = len(pins.keys() - {*libraries, TORCH})
    if others:
        notes.append(f"other packages of {path} stay as they are here, unless a release forces another: {others}")
    return [(name, version) for name, version in pins.items() if name in libraries and name != TORCH]


def _pin(requirement: Requirement) -> tuple[str, str]:
    return canonicalize_name(requirement.name), release_of(requirement)


def _installed(name: str) -> str:
    """The version without its build for a kind of device, as a requirement names it; empty if there is none."""
    return measurement.release_of(version_of(name))


def _equal(one: str, other: str) -> bool:
    if "://" in one or "://" in other or not one or not other:
        return one == other
    return Version(one) == Version(other)
