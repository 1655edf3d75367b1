"""Tries relations on a script: runs it in all ways that they ask for, each once, and lets each judge what it saw."""

import dataclasses
import shlex
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from perfsuite.catalog.cell import Cell, make_cell
from perfsuite.catalog.cell_id import HardwareName
from perfsuite.catalog.registry import Catalog
from perfsuite.catalog.scripts import ENGINE, name_of, script
from perfsuite.features.prove.relation import CannotTry, Judged, Proven, ProveRequest, Relation, Remark, Way
from perfsuite.features.prove.relations._gradients import WITHOUT_DROPOUT
from perfsuite.launch.launcher import CellFailed
from perfsuite.records.job import Proving
from perfsuite.run.runner import Runner, Settings, Watch

FAILED = "failed"  # the remark of a launch that failed, which every relation may have
Ahead = Callable[[int, int, Sequence[str]], None]  # gets the number of this launch, of all, and its relations' names


class ScriptRuns:
    """Launches of a script, which is on as many ranks as its first launch says unless a way says another number."""

    def __init__(self, hardware: str, settings: Settings, watch: Watch) -> None:
        self.hardware, self.settings, self.watch = HardwareName.parse(hardware), settings, watch
        self.cell = ""

    def run(self, way: Way, probes: Sequence[str]) -> list[dict[str, Any]]:
        """What each probe saw, by rank. Raises CellFailed."""
        changes = [*([WITHOUT_DROPOUT] if way.frozen and not way.dropout else []), *way.changes]
        proving = Proving(probes=list(probes), steps=way.steps, seconds=way.seconds, changes=changes, frozen=way.frozen)
        hardware = dataclasses.replace(self.hardware, ranks=way.ranks) if way.ranks else self.hardware
        try:
            return self._run(way, proving, hardware)
        except CellFailed as error:
            if way.ranks or not error.failure.world_size:
                raise
            self.hardware = HardwareName(self.hardware.kind, error.failure.world_size)
            return self._run(way, proving, self.hardware)

    def _run(self, way: Way, proving: Proving, hardware: HardwareName) -> list[dict[str, Any]]:
        model = script(name_of(way.words), shlex.join(way.words), Path.cwd())
        catalog = Catalog(extra_models=(model,))
        cell: Cell = make_cell(model.name, ENGINE, str(hardware), catalog)
        self.cell = cell.id if not way.ranks or not self.cell else self.cell
        with closing(Runner(catalog, self.settings)) as runner:
            return runner.prove(cell, proving, self.watch)


def prove(asked: ProveRequest, tried: Sequence[Relation], runs: ScriptRuns, ahead: Ahead) -> Proven:
    """Try the relations. Those that cannot be tried say why."""
    judged: dict[str, Judged] = {}
    ways: dict[str, Sequence[Way]] = {}
    for relation in tried:
        try:
            ways[relation.name] = relation.ways(asked)
        except CannotTry as error:
            judged[relation.name] = relation.untried(error.remark)
    seen: dict[Way, list[dict[str, Any]] | CellFailed] = {}
    all_ways = list(dict.fromkeys(way for some in ways.values() for way in some))
    for number, way in enumerate(all_ways):
        wanting = [relation for relation in tried if way in ways.get(relation.name, ())]
        same = [one for relation in wanting for one in ways[relation.name] if one == way]
        longest = dataclasses.replace(
            way, steps=max(one.steps for one in same), seconds=max(one.seconds for one in same)
        )
        ahead(number + 1, len(all_ways), [relation.name for relation in wanting])
        try:
            seen[way] = runs.run(longest, sorted({relation.probe for relation in wanting}))
        except CellFailed as error:
            seen[way] = error
    for relation in tried:
        if relation.name not in judged:
            judged[relation.name] = _judged(relation, asked, [seen[way] for way in ways[relation.name]])
    return Proven(cell=runs.cell, relations=[judged[relation.name] for relation in tried])


def _judged(relation: Relation, asked: ProveRequest, seen: Sequence[list[dict[str, Any]] | CellFailed]) -> Judged:
    observed = []
    for one in seen:
        if isinstance(one, CellFailed):
            return relation.untried(Remark(what=FAILED, subject=one.failure.message))
        observed.append([rank[relation.probe] for rank in one])
    try:
        return relation.judge(asked, observed)
    except CannotTry as error:
        return relation.untried(error.remark)
