"""Tries relations on a script: runs it in all ways that they ask for, each once, and lets each judge what it saw."""

import dataclasses
import shlex
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

from perfsuite.catalog.cell import Cell, make_cell
from perfsuite.catalog.cell_id import HardwareName
from perfsuite.catalog.registry import Catalog
from perfsuite.catalog.scripts import ENGINE, name_of, script
from perfsuite.features.prove.relation import (
    CannotTry,
    Judged,
    Proof,
    Proven,
    ProveRequest,
    Relation,
    Remark,
    Seen,
    Way,
)
from perfsuite.launch.launcher import CellFailed
from perfsuite.records.job import Proving
from perfsuite.run.runner import Runner, Settings, Watch

FAILED = "failed"  # the remark of a launch that failed, which every relation may have
Ahead = Callable[[int, int, Sequence[str]], None]  # gets the number of this launch, of all, and its relations' names


class ScriptRuns:
    """Launches of a script, which is on as many ranks as its first launch says unless a way says another number."""

    def __init__(self, asked: ProveRequest, hardware: str, settings: Settings, watch: Watch) -> None:
        self.asked, self.hardware = asked, HardwareName.parse(hardware)
        self.settings, self.watch = settings, watch
        self.cell = ""

    def run(self, way: Way, probes: Sequence[str]) -> list[dict[str, Any]]:
        """What each probe saw, by rank. Raises CellFailed."""
        proving = Proving(
            probes=list(probes),
            steps=way.steps,
            seconds=way.seconds,
            changes=list(way.changes),
            frozen=way.frozen,
            folder=str(self.asked.folder),
        )
        hardware = dataclasses.replace(self.hardware, ranks=way.ranks) if way.ranks else self.hardware
        try:
            return self._run(way, proving, hardware)
        except CellFailed as error:
            if way.ranks or not error.failure.world_size:
                raise
            self.hardware = HardwareName(self.hardware.kind, error.failure.world_size)
            return self._run(way, proving, self.hardware)

    def _run(self, way: Way, proving: Proving, hardware: HardwareName) -> list[dict[str, Any]]:
        model = script(name_of(way.words), shlex.join(way.words), self.asked.home)
        catalog = Catalog(extra_models=(model,))
        cell: Cell = make_cell(model.name, ENGINE, str(hardware), catalog)
        self.cell = cell.id if not way.ranks or not self.cell else self.cell
        with closing(Runner(catalog, self.settings)) as runner:
            return runner.prove(cell, proving, self.watch)


class _Trial:
    """A relation as it is tried: the ways that it waits for, and its result in the end."""

    def __init__(self, relation: Relation, asked: ProveRequest) -> None:
        self.relation = relation
        self.ways: Sequence[Way] = ()
        self.judged: Judged | None = None
        self._proof: Proof = relation.prove(asked)
        self._go_on(lambda: next(self._proof))

    def give(self, seen: Sequence[list[dict[str, Any]] | CellFailed]) -> None:
        """What was seen in the ways that it waits for."""
        failed = next((one for one in seen if isinstance(one, CellFailed)), None)
        if failed:
            error = CannotTry(Remark(what=FAILED, subject=failed.failure.message))
            self._go_on(lambda: self._proof.throw(error))
            return
        facts: list[Seen] = [
            [rank[self.relation.probe] for rank in one] for one in seen if not isinstance(one, CellFailed)
        ]
        self._go_on(lambda: self._proof.send(facts))

    def _go_on(self, step: Callable[[], Sequence[Way]]) -> None:
        self.ways = ()
        try:
            self.ways = step()
        except StopIteration as end:
            self.judged = end.value
        except CannotTry as error:
            self.judged = self.relation.untried(error.remark)


def prove(asked: ProveRequest, tried: Sequence[Relation], runs: ScriptRuns, ahead: Ahead) -> Proven:
    """Try the relations. Those that cannot be tried say why."""
    trials = [_Trial(relation, asked) for relation in tried]
    launches = ScriptLaunches(runs, ahead)
    while waiting := [trial for trial in trials if trial.judged is None]:
        launches.make(waiting)
        for trial in waiting:
            trial.give([launches.seen[way] for way in trial.ways])
    return Proven(cell=runs.cell, relations=[trial.judged for trial in trials if trial.judged])


class ScriptLaunches:
    """What was seen in each way, and by which probes."""

    def __init__(self, runs: ScriptRuns, ahead: Ahead) -> None:
        self.seen: dict[Way, list[dict[str, Any]] | CellFailed] = {}
        self._runs, self._ahead = runs, ahead
        self._probes: dict[Way, set[str]] = {}
        self._made = 0

    def make(self, waiting: Sequence[_Trial]) -> None:
        """Run each way that is waited for, if it was not run with these probes."""
        ways = dict.fromkeys(way for trial in waiting for way in trial.ways)
        wanting = {way: [trial.relation for trial in waiting if way in trial.ways] for way in ways}
        missing = [
            way
            for way, relations in wanting.items()
            if not {relation.probe for relation in relations} <= self._probes.get(way, set())
        ]
        for number, way in enumerate(missing):
            same = [one for trial in waiting for one in trial.ways if one == way]
            longest = dataclasses.replace(
                way, steps=max(one.steps for one in same), seconds=max(one.seconds for one in same)
            )
            self._made += 1
            self._ahead(self._made, self._made + len(missing) - number - 1, [one.name for one in wanting[way]])
            self._probes[way] = {relation.probe for relation in wanting[way]}
            try:
                self.seen[way] = self._runs.run(longest, sorted(self._probes[way]))
            except CellFailed as error:
                self.seen[way] = error
