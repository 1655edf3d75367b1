"""Same-session A/B: two sides of a cell, each with a rank server of its own, launched in pairs, A B or B A by lot, or
both at once with steps that alternate.

A side is the environment of the ranks (other releases, or a revision of the repository) or, in the same environment,
another strategy of one model.
"""

import contextlib
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from perfsuite.catalog.registry import Catalog
from perfsuite.cell import Cell, make_cell, parse_cell
from perfsuite.duet import measure_in_turns
from perfsuite.errors import UsageError
from perfsuite.gate.compare import Comparison, compare, differences
from perfsuite.gate.paired import PAIRS, enough
from perfsuite.launch.environments import HERE, Environment, at_revision, sources, with_releases
from perfsuite.records import Measurement
from perfsuite.runner import Runner, Settings, Watch

REVISION = "git:"
RUNNING = "here"
ORDERS = ((0, 1), (1, 0))  # of a pair: A first, or B


@dataclass(frozen=True)
class Side:
    """One side. ``strategy`` replaces the cells'; ``copy`` is the revision's root, if it is one."""

    name: str
    catalog: Catalog
    environment: Environment = HERE
    strategy: str | None = None
    copy: Path | None = None

    def cell(self, text: str) -> Cell:
        """The cell as this side has it. Raises UsageError if nothing of it comes from the side's revision."""
        cell = parse_cell(text, self.catalog)
        if self.strategy is not None:
            suffixes = text.split("-")[3:]
            return make_cell(cell.model.name, self.strategy, cell.hardware.name, self.catalog, suffixes)
        if self.copy is not None:
            modules = [cell.model.build.split(":")[0].split(".")[0], "perfsuite"]
            origins = [Path(origin) for origin in self.environment.origins(modules)]
            if not any(path.is_relative_to(self.copy) for path in [*origins, *self.catalog.folders]):
                raise UsageError(
                    f"{self.name}: {cell.id} imports nothing of this repository, so both sides would be the same. Its "
                    f"model is built by {cell.model.build}, its definition is in none of the repository's --catalog."
                )
        return cell


def sides(texts: tuple[str, str], catalog: Catalog, repository: Path) -> tuple[Side, Side]:
    """The sides that ``name==version …``, ``git:REVISION``, ``here`` or a strategy name.

    Beside a revision "here" is the repository as it lies there, with what is not committed. Raises UsageError for sides
    of two kinds, and for what cannot be had.
    """
    kinds = [kind_of(text) for text in texts]
    named = {kind for kind in kinds if kind != RUNNING}
    if len(named) > 1:
        raise UsageError(
            f"{texts[0]!r} is a {kinds[0]}, {texts[1]!r} a {kinds[1]}: compare two of one kind, or one and here."
        )
    if named == {"strategy"} and RUNNING in kinds:
        raise UsageError("A strategy is compared with another strategy: give both --a and --b.")
    one, other = (
        _side(text, kind, catalog, repository, "revision" in named) for text, kind in zip(texts, kinds, strict=True)
    )
    return one, other


def kind_of(text: str) -> str:
    """What a side is by its text: "release", "revision", "strategy" or "here"."""
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
        folders = [
            copy / folder.relative_to(root) if folder.is_relative_to(root) else folder for folder in catalog.folders
        ]
        missing = [str(folder) for folder in folders if not folder.is_dir()]
        if missing:
            raise UsageError(f"{text} has no folder {missing[0]}, which --catalog names.")
        return Side(text, Catalog(tuple(folders), catalog.extra_models), environment, copy=copy)
    if beside_revision:
        return Side(text, catalog, Environment(path=tuple(map(str, sources(repository)))))
    return Side(text, catalog)


class Session:
    """The two runners of an A/B of some cells; ``close()`` ends their rank servers. ``interleave`` says what of the two
    sides alternates, "launches" or "steps". Raises UsageError for a cell that a side cannot have.
    """

    def __init__(
        self,
        a: Side,
        b: Side,
        cells: Iterable[str],
        settings: Settings,
        threshold: float,
        blocks: int,
        interleave: str = "launches",
    ) -> None:
        self.cells = [(a.cell(text), b.cell(text)) for text in cells]
        self.catalog = b.catalog
        self.threshold = threshold
        self.blocks = blocks
        self.in_turns = interleave == "steps" and blocks > 0
        self.installed = _installed(a.environment, b.environment)
        first = Runner(a.catalog, settings, a.environment)
        # Two strategies share a server. Two environments do not, even where they are equal: an A/B of the same twice
        # must show what that alone makes of times. A server runs one cell at a time.
        shared = a.strategy and not self.in_turns
        self._runners = (first, first if shared else Runner(b.catalog, settings, b.environment))

    def compare(self, cells: tuple[Cell, Cell], watch: Watch) -> Comparison:
        """Launch a cell on both sides until its times are told well enough or the blocks are used up."""
        known = self.catalog.metrics(cells[1].strategy.engine.process)
        timed = [metric.name for metric in known if metric.hold == "time"]
        launches: tuple[list[Measurement], list[Measurement]] = ([], [])
        for _ in range(max(1, PAIRS * self.blocks)):
            if self.blocks:
                self.close()  # what a server alone makes of times must be noise of pairs, not a side's for good
            order = random.choice(ORDERS)
            if self.in_turns:
                for number, one in enumerate(measure_in_turns(self._runners, cells, order[0], watch)):
                    launches[number].append(one)
            else:
                for number in order:
                    launches[number].append(self._runners[number].measure(cells[number], watch))
            if _ended(launches, timed, self.threshold):
                break
        return compare(
            *launches,
            known,
            strategies=(cells[0].strategy.name, cells[1].strategy.name),
            threshold=self.threshold,
            installed=self.installed,
        )

    def close(self) -> None:
        """End both rank servers."""
        with contextlib.ExitStack() as stack:
            for runner in self._runners:
                stack.callback(runner.close)


def _ended(
    launches: tuple[Sequence[Measurement], Sequence[Measurement]], timed: Iterable[str], threshold: float
) -> bool:
    both = [one for side in launches for one in side]
    if any(one.outcome != "fits" for one in both):
        return True
    # What a side lacks is red or left out in the end, and no further pair helps it.
    there = [metric for metric in timed if all(metric in one.readings for one in both)]
    return all(enough(differences(*launches, metric), threshold) for metric in there)


def _installed(a: Environment, b: Environment) -> tuple[dict[str, str], dict[str, str]]:
    """Each side's versions of what was installed on either, without those that it does not have."""
    inherited = {}
    for name, _ in a.installed + b.installed:
        with contextlib.suppress(metadata.PackageNotFoundError):
            inherited[name] = metadata.version(name)
    return inherited | dict(a.installed), inherited | dict(b.installed)
