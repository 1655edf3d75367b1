"""The sides of a comparison. A side is the environment of the ranks: other releases, a revision of the repository, this
environment without some changes. Or it is, in the same environment, another strategy for the same model.
"""

import dataclasses
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from perfsuite.catalog.cell import Cell, make_cell, parse_cell
from perfsuite.catalog.cell_id import CellId
from perfsuite.catalog.definitions import Model
from perfsuite.catalog.registry import Catalog
from perfsuite.environments.environments import HERE, Environment, with_releases
from perfsuite.environments.sides import at_revision, side_with, sources
from perfsuite.errors import UnknownName, UsageError
from perfsuite.records.change import NONE, SET, Change, ChangeKind
from perfsuite.run.environment_changes import code_of, requirement_of
from perfsuite.system.machine import version_of
from perfsuite.system.units import listed

REVISION = "git:"
RUNNING = "here"
_COMMIT = "Commit {}, or give another side, such as here or name==version."


@dataclass(frozen=True)
class Side:
    """One side. ``strategy`` replaces the cells'; ``copy`` is the root of a revision's copy, if it is one, and
    ``working`` the catalog outside of it. With a ``root``, that of the repository, a cell may use none of its code.
    ``asked`` are the packages of which it names a release, ``faults`` those of its cells.
    """

    name: str
    catalog: Catalog
    environment: Environment = HERE
    strategy: str | None = None
    copy: Path | None = None
    working: Catalog | None = None
    root: Path | None = None
    asked: frozenset[str] = frozenset()
    faults: tuple[str, ...] = ()

    @property
    def brought(self) -> list[Change]:
        """What differs from here in addition to the releases that were asked for, since these force it."""
        moved = [
            (name, there, version_of(name)) for name, there in self.environment.installed if name not in self.asked
        ]
        return [Change(name, there, here or NONE) for name, there, here in moved if there != here]

    def cell(self, text: str) -> Cell:
        """The cell on this side. Raises UsageError if the side's revision contains none of its code."""
        return replace(self._cell(text), faults=self.faults)

    def _cell(self, text: str) -> Cell:
        try:
            cell = parse_cell(text, self.catalog)
        except UnknownName as error:
            raise self._uncommitted(text) or error from None
        if self.strategy is not None:
            suffixes = CellId.split(text).suffixes
            return make_cell(cell.model.name, self.strategy, cell.hardware.name, self.catalog, suffixes)
        if self.copy is not None and not cell.model.command and self._must_have_code_of(cell):
            modules = [cell.model.build.split(":")[0].split(".")[0], "perfsuite"]
            origins = [Path(origin) for origin in self.environment.origins(modules)]
            if not any(path.is_relative_to(self.copy) for path in [*origins, *self.catalog.folders]):
                raise UsageError(
                    f"{self.name}: {cell.id} uses no code of this repository, so both sides would be the same. Its "
                    f"model is built by {cell.model.build}, and no --catalog folder of the repository defines it."
                )
        return cell

    def _must_have_code_of(self, cell: Cell) -> bool:
        return self.root is None or bool(code_of(cell, self.working or self.catalog, self.root))

    def _uncommitted(self, text: str) -> UsageError | None:
        """What the user's catalog defines of the cell and the revision's does not; None if there is no such thing."""
        if self.working is None:
            return None
        parse_cell(text, self.working)  # loads it; a name that is unknown there too is reported as such
        known = self.working.origins.items()
        files = {file for (kind, name), file in known if name not in self.catalog.all(kind)}
        if not files:
            return None
        named = listed(sorted(files))
        return UsageError(f"{self.name} does not have the definitions of {named}. {_COMMIT.format('them')}")


def sides(texts: tuple[str, str], catalog: Catalog, repository: Path) -> tuple[Side, Side]:
    """The sides that ``name==version …``, ``git:REVISION``, ``here`` or a strategy name.

    Next to a revision, "here" is the repository with its uncommitted changes. Raises UsageError for sides of two kinds,
    and for a side that does not exist.
    """
    kinds = [kind_of(text) for text in texts]
    named = {kind for kind in kinds if kind != RUNNING}
    if len(named) > 1:
        raise UsageError(
            f"{texts[0]!r} is a {kinds[0]}, but {texts[1]!r} is a {kinds[1]}: compare two of one kind, or one and here."
        )
    if named == {"strategy"} and RUNNING in kinds:
        raise UsageError("A strategy is compared with another strategy: give both --a and --b.")
    a, b = (
        _side(text, kind, catalog, repository, "revision" in named) for text, kind in zip(texts, kinds, strict=True)
    )
    return a, b


def kind_of(text: str) -> str:
    """The kind of a side: "release", "revision", "strategy" or "here"."""
    if text.startswith(REVISION):
        return "revision"
    if text == RUNNING:
        return RUNNING
    return "release" if "=" in text or "@" in text else "strategy"


def _side(text: str, kind: str, catalog: Catalog, repository: Path, beside_revision: bool) -> Side:
    if kind == "release":
        texts = [text] if "@" in text else text.split()
        return Side(text, catalog, with_releases(texts), asked=_names(texts))
    if kind == "strategy":
        return Side(text, catalog, strategy=text)
    if kind == "revision":
        environment, root, copy = at_revision(text.removeprefix(REVISION), repository)
        return Side(text, catalog_at(catalog, root, copy, text), environment, copy=copy, working=catalog)
    if beside_revision:
        return Side(text, catalog, Environment(path=tuple(map(str, sources(repository)))))
    return Side(text, catalog)


def _names(texts: Iterable[str]) -> frozenset[str]:
    """Of these requirements."""
    return frozenset(canonicalize_name(Requirement(text).name) for text in texts)


def catalog_at(catalog: Catalog, root: Path, copy: Path, revision: str) -> Catalog:
    """The catalog with the folders of the repository's copy instead of its own. Raises UsageError if one is missing."""
    folders = [copy / folder.relative_to(root) if folder.is_relative_to(root) else folder for folder in catalog.folders]
    for folder, there in zip(catalog.folders, folders, strict=True):
        if not there.is_dir():
            raise UsageError(
                f"{revision} has no folder {folder}, which --catalog or perf_catalog names. {_COMMIT.format('it')}"
            )
    models = tuple(_at(model, root, copy) for model in catalog.extra_models)
    return Catalog(tuple(folders), models, catalog.materiality)


def _at(model: Model, root: Path, copy: Path) -> Model:
    """A script starts in the copy; other models are imported from there."""
    folder = Path(model.folder)
    inside = bool(model.command) and folder.is_relative_to(root)
    return dataclasses.replace(model, folder=str(copy / folder.relative_to(root))) if inside else model


def requirements(changes: Iterable[Change]) -> list[str]:
    """The releases to install to revert these changes."""
    return [
        requirement_of(change.name, change.before)
        for change in changes
        if change.kind == ChangeKind.RELEASE and not change.is_added
    ]


@dataclass
class Sides:
    """This environment, and it without some changes. Each is made once and then known."""

    catalog: Catalog
    repository: Path
    _known: dict[tuple[Change, ...], Side] = field(default_factory=dict)

    def without(self, changes: Collection[Change]) -> Side:
        """This environment with these changes reverted. Raises UsageError if it cannot be built."""
        key = tuple(changes)
        if key not in self._known:
            self._known[key] = self._without(key)
        return self._known[key]

    def with_only(self, kept: Collection[Change], changes: Sequence[Change]) -> Side:
        """This environment with the ``kept`` ones of these changes, and the others reverted."""
        return self.without([change for change in changes if change not in kept])

    def _without(self, changes: Sequence[Change]) -> Side:
        if not changes:
            return Side(RUNNING, self.catalog)
        name = ", ".join(f"{change.name} {change.before}" for change in changes)
        releases = requirements(changes)
        added = [change.name for change in changes if change.is_added]
        environment = with_releases(releases, without=added) if releases or added else HERE
        overrides = [
            (change.name, None if change.before == NONE else change.before) for change in changes if change.kind in SET
        ]
        environment = replace(environment, overrides=tuple(overrides))
        code = next((change for change in changes if change.kind == ChangeKind.CODE), None)
        if code is None:
            return Side(name, self.catalog, environment, asked=_names(releases))
        older, root, copy = side_with(code, self.repository)
        there = replace(older, python=environment.python, installed=environment.installed, unmet=environment.unmet)
        there = replace(there, overrides=(*older.overrides, *overrides))
        catalog = catalog_at(self.catalog, root, copy, code.before)
        copied = None if code.contents else copy
        return Side(name, catalog, there, copy=copied, working=self.catalog, root=root, asked=_names(releases))
