"""A/B in one session: two sides of a cell, each with its own rank servers, launched in pairs: at once with alternating
steps, or one after the other, in random order.

A side is the environment of the ranks (other releases, or a revision of the repository) or, in the same environment,
another strategy for the same model.
"""

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfsuite.catalog.cell import Cell, Hardware, make_cell, parse_cell
from perfsuite.catalog.cell_id import CellId
from perfsuite.catalog.definitions import Model
from perfsuite.catalog.registry import Catalog
from perfsuite.compare.compare import Comparison, compare
from perfsuite.compare.paired import MOST_PAIRS
from perfsuite.compare.pooling import Effect
from perfsuite.compare.terms import Terms, terms_of
from perfsuite.environments.environments import HERE, Environment, with_releases
from perfsuite.environments.sides import at_revision, sources
from perfsuite.errors import UnknownName, UsageError
from perfsuite.launch.machine import version_of
from perfsuite.records.measurement import Measurement
from perfsuite.run.pairs import Pairs, first_launch, steps_of_pair
from perfsuite.run.runner import Runner, Settings, Watch
from perfsuite.units import listed

REVISION = "git:"
RUNNING = "here"
PAIR_SECONDS = 5.0  # for the timed steps of both sides
SHORT_STEPS = 5
_COMMIT = "Commit {}, or give another side, such as here or name==version."


@dataclass(frozen=True)
class Side:
    """One side. ``strategy`` replaces the cells'; ``copy`` is the root of a revision's copy, if it is one, and
    ``working`` the catalog outside of it.
    """

    name: str
    catalog: Catalog
    environment: Environment = HERE
    strategy: str | None = None
    copy: Path | None = None
    working: Catalog | None = None

    def cell(self, text: str) -> Cell:
        """The cell on this side. Raises UsageError if the side's revision contains none of its code."""
        try:
            cell = parse_cell(text, self.catalog)
        except UnknownName as error:
            raise self._uncommitted(text) or error from None
        if self.strategy is not None:
            suffixes = CellId.split(text).suffixes
            return make_cell(cell.model.name, self.strategy, cell.hardware.name, self.catalog, suffixes)
        if self.copy is not None and not cell.model.command:
            modules = [cell.model.build.split(":")[0].split(".")[0], "perfsuite"]
            origins = [Path(origin) for origin in self.environment.origins(modules)]
            if not any(path.is_relative_to(self.copy) for path in [*origins, *self.catalog.folders]):
                raise UsageError(
                    f"{self.name}: {cell.id} uses no code of this repository, so both sides would be the same. Its "
                    f"model is built by {cell.model.build}, and no --catalog folder of the repository defines it."
                )
        return cell

    def _uncommitted(self, text: str) -> UsageError | None:
        """What the user's catalog defines of the cell and the revision's does not; None if there is no such thing."""
        if self.working is None:
            return None
        parse_cell(text, self.working)  # loads it; a name that is unknown there too is told as such
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
    one, other = (
        _side(text, kind, catalog, repository, "revision" in named) for text, kind in zip(texts, kinds, strict=True)
    )
    return one, other


def kind_of(text: str) -> str:
    """The kind of a side: "release", "revision", "strategy" or "here"."""
    if text.startswith(REVISION):
        return "revision"
    if text == RUNNING:
        return RUNNING
    return "release" if "=" in text or "@" in text else "strategy"


def _side(text: str, kind: str, catalog: Catalog, repository: Path, beside_revision: bool) -> Side:
    if kind == "release":
        return Side(text, catalog, with_releases([text] if "@" in text else text.split()))
    if kind == "strategy":
        return Side(text, catalog, strategy=text)
    if kind == "revision":
        environment, root, copy = at_revision(text.removeprefix(REVISION), repository)
        return Side(text, catalog_at(catalog, root, copy, text), environment, copy=copy, working=catalog)
    if beside_revision:
        return Side(text, catalog, Environment(path=tuple(map(str, sources(repository)))))
    return Side(text, catalog)


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


def interleave_of(hardware: Iterable[Hardware]) -> str:
    """What alternates by default: the steps of both sides on CPUs, whose memory holds both, else their launches."""
    return "steps" if all(each.device is None for each in hardware) else "launches"


class Experiment:
    """An A/B of some cells. ``interleave`` says what alternates between the sides, "launches" or "steps". ``tolerance``
    is the smallest relative difference of a time that must be detected, by default that of the hardware's class. With
    no pairs, one launch of each side is compared, without times. ``run_size`` is the number of cells of the whole run,
    to which the error rates apply. Raises UsageError for a cell that a side does not have.
    """

    def __init__(
        self,
        a: Side,
        b: Side,
        cells: Iterable[str],
        settings: Settings,
        tolerance: float | None = None,
        pairs: int = MOST_PAIRS,
        interleave: str = "launches",
        run_size: int | None = None,
    ) -> None:
        self.sides = (a, b)
        self.cells = [(a.cell(text), b.cell(text)) for text in cells]
        self.settings = settings
        self.tolerance = tolerance
        self.pairs = pairs
        self.in_turns = interleave == "steps" and pairs > 0
        self.run_size = run_size or len(self.cells)
        self.installed = _installed(a.environment, b.environment)

    def compare(
        self,
        cells: tuple[Cell, Cell],
        watch: Watch,
        step_seconds: float | None = None,
        faults: tuple[Sequence[str], Sequence[str]] = ((), ()),
        known: tuple[Measurement | None, Measurement | None] = (None, None),
        one_sided: bool = False,
    ) -> Comparison:
        """Launch a cell on both sides until its times are decided or the pairs are used up.

        ``step_seconds`` is the duration of a step; if unknown, a launch measures it. A pair takes about PAIR_SECONDS,
        since many short steps are more precise than a few long launches; a script that makes too few steps for that
        makes all that it can. With no pairs, a side with a ``known`` measurement is not launched again. ``one_sided``:
        only whether B is slower is asked.
        """
        if self.pairs and step_seconds is None:
            step_seconds = self.step_seconds(cells, watch, faults)
        pairs = self.pairs_of(cells, step_seconds, PAIR_SECONDS, faults)
        if not self.pairs:
            with self.runners() as runners:
                launches = [self._once(runners, side, cells, watch, faults, known) for side in (0, 1)]
            pairs.keep(*launches)
        while len(pairs) < self.pairs:
            with self.runners() as runners:
                added = pairs.add(runners, watch)
            if added and pairs.decided(self.terms(cells[1])):
                break
        return self.result(pairs, one_sided)

    def pairs_of(
        self,
        cells: tuple[Cell, Cell],
        step_seconds: float | None,
        seconds: float,
        faults: tuple[Sequence[str], Sequence[str]] = ((), ()),
    ) -> Pairs:
        """The pairs of a cell, none yet: one makes steps for so many seconds."""
        steps = steps_of_pair(step_seconds, self.settings.steps, seconds) if self.pairs else self.settings.steps
        return Pairs(
            cells=cells,
            metrics=self.sides[1].catalog.metrics(cells[1].strategy.engine.process),
            settings=dataclasses.replace(self.settings, steps=steps),
            least=self.settings.steps,
            in_turns=self.in_turns,
            faults=faults,
        )

    def terms(self, cell: Cell) -> Terms:
        """Those on which the cell's times are compared."""
        return terms_of(cell.id, self.tolerance or cell.hardware.time_tolerance).of_run(self.run_size)

    def result(self, pairs: Pairs, one_sided: bool = False, pooled: Mapping[str, Effect] | None = None) -> Comparison:
        """What the pairs say; of a whole grid, what they say together with the ``pooled`` ones of other cells."""
        one, other = pairs.cells
        return compare(
            *pairs.launches,
            pairs.metrics,
            strategies=(one.strategy.name, other.strategy.name),
            terms=self.terms(other),
            installed=self.installed,
            one_sided=one_sided,
            pooled=pooled,
        )

    @contextlib.contextmanager
    def runners(self) -> Iterator[list[Runner]]:
        """New rank servers: their own effect on times must be noise between pairs, not between sides."""
        runners = [Runner(side.catalog, self.settings, side.environment) for side in self.sides]
        with contextlib.closing(runners[0]), contextlib.closing(runners[1]):
            yield runners

    def _once(
        self,
        runners: Sequence[Runner],
        side: int,
        cells: tuple[Cell, Cell],
        watch: Watch,
        faults: tuple[Sequence[str], Sequence[str]],
        known: tuple[Measurement | None, Measurement | None],
    ) -> Measurement:
        """The one launch of a side, which need not be made again if it is known."""
        timed = [metric for metric in self.sides[1].catalog.metrics(cells[1].strategy.engine.process) if metric.is_time]
        return first_launch(known[side], timed) or runners[side].measure(cells[side], watch, faults[side])

    def step_seconds(
        self,
        cells: tuple[Cell, Cell],
        watch: Watch,
        faults: tuple[Sequence[str], Sequence[str]] = ((), ()),
    ) -> float | None:
        """From a short launch, which also compiles what is compiled once; None if it fails, as the first pair will
        report.
        """
        with self.runners() as runners:
            runners[1].settings = dataclasses.replace(self.settings, steps=SHORT_STEPS)
            measurement = runners[1].measure(cells[1], watch, faults[1])
        reading = measurement.readings.get("step_time_seconds")
        return float(reading.value) if reading else None


def _installed(a: Environment, b: Environment) -> tuple[dict[str, str], dict[str, str]]:
    """Each side's versions of the packages installed for either side, without those that it does not have."""
    inherited = {name: here for name, _ in a.installed + b.installed if (here := version_of(name))}
    return inherited | dict(a.installed), inherited | dict(b.installed)
