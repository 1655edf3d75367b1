"""The trial: tests in this run, on this machine, what a stored time or a changed metric only suggests.

    alarm → the baseline's environment and this one, launched in pairs with alternating steps → slower, the same, or
    undecided; if slower → each change alone, then all changes but one → the library that caused it

The baseline's environment is this one with the recorded releases, variables and code instead of those that differ;
uv builds it once and keeps it. If nothing has changed, there is nothing to try.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from perfsuite.catalog.definitions import Metric
from perfsuite.catalog.registry import Catalog
from perfsuite.cell import Cell
from perfsuite.errors import PerfsuiteError
from perfsuite.gate.compare import Comparison
from perfsuite.gate.judge import COMMAND, verdict_of, with_command
from perfsuite.gate.lines import NONE, UNTRIED
from perfsuite.gate.paired import LOOKS, MOST_PAIRS
from perfsuite.gate.pool import own_code_since, runs_of
from perfsuite.launch.environments import HERE, at_revision, with_releases
from perfsuite.measure.ab import PAIR_SECONDS, RUNNING, Experiment, Side, catalog_at
from perfsuite.measure.changes import CODE, Change, changes_since, code_of, listed, requirement_of
from perfsuite.measure.culprits import Found, culprits
from perfsuite.measure.imports import code_since
from perfsuite.measure.runner import Settings, Watch
from perfsuite.records.baseline import Baseline, TimedRun
from perfsuite.records.measurement import Measurement
from perfsuite.records.verdict import Line, Verdict

ONE_LAUNCH = 0  # pairs: one launch of each side suffices for metrics that repeat themselves exactly
SUSPECTED = ("alarm", "machine", "not held")  # times that a trial decides
UNTRIABLE = ("failed", "missing")  # of a time that a side lacks, or that is no number
INNOCENT = ("same", "improved", "immaterial")
OUTCOME = "outcome"  # one side did not fit, so only the outcomes are compared


def unheard(sentence: str) -> None:
    """A no-op announcement."""


@dataclass(frozen=True)
class Trial:
    """Runs the trials of cells. ``repository`` has the user's code, ``cells`` is the number of cells in the run.
    ``tell`` gets a sentence when a trial begins, since it may take minutes.
    """

    catalog: Catalog
    settings: Settings
    repository: Path
    watch: Watch
    tolerance: float | None = None
    cells: int = 1
    tell: Callable[[str], None] = unheard

    def begin(self, cell: Cell, what: str, against: str, pairs: int | None, measured: Measurement | None) -> None:
        """Announce a trial: of what, against what, and how long it takes."""
        amount, seconds = "one launch of each side", PAIR_SECONDS + (measured.wall_seconds if measured else 0.0)
        if pairs is None:
            amount = f"{LOOKS[0]} to {MOST_PAIRS} pairs of launches, each of {seconds:.0f} s or more"
        self.tell(f"{cell.id}: a trial of {what} against {against} begins: {amount}")

    def hold(
        self,
        cell: Cell,
        measurement: Measurement,
        baseline: Baseline,
        verdict: Verdict,
        faults: Sequence[str] = (),
        command: str = COMMAND,
        since: TimedRun | None = None,
    ) -> Verdict:
        """The verdict after the trial of its open lines. ``command`` collects the cell's test. ``since`` is the run of
        the other side's environment, by default the baseline's newest.
        """
        metrics = self.catalog.metrics(cell.strategy.engine.process)
        since = since or runs_of(baseline, metrics)[-1]
        changed = self.changed(cell, measurement, since)
        fixed = [one for one in changed if one.fixed]
        answer = _Answer(measurement, baseline, verdict, metrics, command, fixed)
        tried = [one for one in changed if not one.fixed]
        if not tried:
            return answer.untried(own_code_since(since, measurement))
        worse = [line.metric for line in verdict.lines if line.status == "regressed"]
        forced = not worse and all(line.status != "alarm" for line in verdict.lines)
        suspected = [
            line.metric
            for line in verdict.lines
            if line.metric in answer.timed and (forced or line.status in SUSPECTED)
        ]
        pairs = None if suspected else ONE_LAUNCH
        against = listed(f"{one.name} {one.before}" for one in tried)
        titles = {line.metric: line.title for line in verdict.lines}
        what = [titles[name] for name in dict.fromkeys([*suspected, *worse])]
        self.begin(cell, listed(what or ["all metrics"]), against, pairs, measurement)
        begin = time.monotonic()
        try:
            comparison = self.compare(cell, tried, [], pairs, measurement, faults)
        except PerfsuiteError as error:
            return answer.not_held(str(error))
        if not comparison.verdict.lines:
            return answer.not_held(comparison.verdict.headline.partition(": ")[2])
        lines = {line.metric: line for line in comparison.verdict.lines}
        launches = pairs_of(comparison) if suspected else "one launch"
        answer.told.append(f"against {against}: {launches}, {time.monotonic() - begin:.0f} s")
        # Every time that the pairs compared counts, suspected or not: a trial ends with the first that is slower.
        compared = list(dict.fromkeys([*suspected, *(one.metric for one in comparison.times)]))
        convicted = [name for name in [*compared, *worse] if name in lines and lines[name].status == "regressed"]
        if convicted:
            titles = {name: lines[name].title for name in convicted}
            answer.told.append(self.blame(cell, tried, titles, comparison, faults))
        if innocent := [
            lines[name].title for name in worse if name in lines and lines[name].status in ("same", "immaterial")
        ]:
            answer.told.append(
                f"{listed(innocent)}: the same in the baseline's environment here, so the cause is "
                + ("a change that was not tried, " if answer.fixed else "")
                + "the machine or something that the baseline does not record"
            )
        return answer.with_lines({name: lines[name] for name in compared if name in lines})

    def changed(self, cell: Cell, measurement: Measurement, since: TimedRun) -> list[Change]:
        """Every difference between the environment of a baseline's run and that of the measurement."""
        return changes_since(since, measurement, code_since(since, measurement, cell, self.catalog, self.repository))

    def compare(
        self,
        cell: Cell,
        reverted: Collection[Change],
        kept: Collection[Change],
        pairs: int | None,
        here: Measurement | None,
        faults: Sequence[str] = (),
        there: Measurement | None = None,
    ) -> Comparison:
        """A has all of these changes reverted. B has only the ``kept`` ones; it is this environment if there are none.

        ``pairs`` is the most pairs of launches, by default that of ab.py. ``here`` was measured in this environment,
        ``there`` in A: neither is launched again for ONE_LAUNCH. Raises UsageError if a side cannot be built.
        """
        a = self.side(cell, reverted)
        b = self.side(cell, [one for one in reverted if one not in kept]) if kept else Side(RUNNING, self.catalog)
        interleave = "steps" if cell.hardware.device is None else "launches"
        options = {} if pairs is None else {"pairs": pairs}
        session = Experiment(
            a, b, [cell.id], self.settings, self.tolerance, interleave=interleave, run_size=self.cells, **options
        )
        step = here.readings.get("step_time_seconds") if here else None
        seconds, known = float(step.value) if step else None, (there, None if kept else here)
        with closing(session):
            return session.compare(session.cells[0], self.watch, seconds, ((), faults), known)

    def side(self, cell: Cell, reverted: Collection[Change]) -> Side:
        """This environment with these changes reverted. Raises UsageError if it cannot be built."""
        if not reverted:
            return Side(RUNNING, self.catalog)
        name = ", ".join(f"{one.name} {one.before}" for one in reverted)
        releases = requirements(reverted)
        environment = with_releases(releases) if releases else HERE
        overrides = [
            (one.name, None if one.before == NONE else one.before) for one in reverted if one.kind == "variable"
        ]
        environment = replace(environment, overrides=tuple(overrides))
        commit = next((one.before for one in reverted if one.kind == "code"), "")
        if not commit:
            return Side(name, self.catalog, environment)
        older, root, copy = at_revision(commit, self.repository)
        catalog = catalog_at(self.catalog, root, copy, f"{CODE} {commit}")
        # A cell without code of the user's own takes nothing from there, which is no error.
        own = any(one.files for one in reverted) or code_of(cell, self.catalog, root)
        theirs = copy if own else None
        return Side(name, catalog, replace(environment, path=older.path), copy=theirs)

    def blame(
        self,
        cell: Cell,
        changed: Sequence[Change],
        convicted: Mapping[str, str],
        comparison: Comparison,
        faults: Sequence[str] = (),
    ) -> str:
        """Which change made those metrics worse that the comparison found worse, given with their titles."""
        timed = {one.name for one in self.catalog.metrics(cell.strategy.engine.process) if one.hold == "time"}
        times = [name for name in convicted if name in timed]
        titles = {title: [name] for name, title in convicted.items() if name not in timed}
        if times:  # they have one cause: a comparison ends with the first time that it finds worse
            titles[listed(convicted[name] for name in times)] = times
        problems: list[str] = []

        def attempt(kept: Sequence[Change]) -> Found:
            self.tell(f"{cell.id}: the trial goes on: only {listed(kept)}")
            try:
                pairs = None if times else ONE_LAUNCH
                found = self.compare(cell, changed, kept, pairs, comparison.b, faults, comparison.a).verdict
            except PerfsuiteError as error:
                problems.append(f"with {listed(kept)}: {error}")
                return {}
            if not found.lines and OUTCOME not in convicted:
                problems.append(f"with {listed(kept)}: {found.headline.partition(': ')[2]}")
            slower = any(line.metric in timed and line.status == "regressed" for line in found.lines)
            return {title: (slower and names == times) or _is_worse(found, names) for title, names in titles.items()}

        sentence = culprits(changed, list(titles), attempt)
        return f"{sentence} ({'; '.join(problems)})" if problems else sentence


def pairs_of(comparison: Comparison) -> str:
    """``3 pairs of launches``."""
    count = len(comparison.a.launches)
    return f"{count} {'pair' if count == 1 else 'pairs'} of launches"


def _is_worse(verdict: Verdict, metrics: Sequence[str]) -> bool | None:
    """Whether one of the metrics is worse; None if unknown."""
    if OUTCOME in metrics:
        return {"regressed": True, "failed": None}.get(verdict.status, False) if not verdict.lines else False
    statuses = {line.metric: line.status for line in verdict.lines}
    found = [statuses.get(name, "") for name in metrics]
    if "regressed" in found:
        return True
    return False if all(status in INNOCENT for status in found) else None


def requirements(changes: Iterable[Change]) -> list[str]:
    """The releases to install to revert these changes."""
    return [requirement_of(one.name, one.before) for one in changes if one.kind == "release"]


@dataclass
class _Answer:
    """A verdict during its trial. ``told`` are the trial's reports, ``fixed`` the changes that it cannot try."""

    measurement: Measurement
    baseline: Baseline
    verdict: Verdict
    metrics: Sequence[Metric]
    command: str
    fixed: Sequence[Change]
    told: list[str] = field(default_factory=list)

    @property
    def timed(self) -> set[str]:
        return {metric.name for metric in self.metrics if metric.hold == "time"}

    def untried(self, own_code: str) -> Verdict:
        """No difference can be reverted, that of perfsuite's own code included."""
        if own_code:
            self.told.append(f"not tried: {own_code}: compare its revisions with perfsuite ab --a git:REV --b here")
        if self.fixed or own_code:
            return self.with_lines({})
        self.told.append("not tried: nothing that a trial can revert has changed since the baseline")
        return self.with_lines({}, "machine")

    def not_held(self, why: str) -> Verdict:
        """The sides could not be compared."""
        self.told.append(f"the trial could not run: {why}")
        return self.with_lines({})

    def with_lines(self, tried: Mapping[str, Line], unanswered: str = "undecided") -> Verdict:
        """The verdict with the lines from the trial, whose pairs say more about a time than stored ones do: what they
        did not decide is undecided, also where the stored times had suggested nothing. An alarm stays open if a change
        that was not tried may have caused it.
        """
        told = [*self.told, *(f"not tried: {one} cannot be reverted here: {one.fixed}" for one in self.fixed)]
        lines = []
        for line in self.verdict.lines:
            new = tried.get(line.metric)
            if new is not None and new.status != "not held" and line.status not in UNTRIABLE:
                line = self._acquitted(line, new) if new.status in INNOCENT else new
            elif line.status == "alarm":
                line = msgspec.structs.replace(line, status=unanswered)
            lines.append(line)
        made = verdict_of(self.measurement, self.baseline, lines, self.metrics)
        made = with_command(made, self.command)
        return msgspec.structs.replace(made, changed=self.verdict.changed, trial=told)

    def _acquitted(self, line: Line, new: Line) -> Line:
        """The trial's line, of a time that it did not find slower."""
        if self.fixed and line.status == "alarm":
            return msgspec.structs.replace(new, status="undecided", note=f"{new.note}; {UNTRIED}")
        return msgspec.structs.replace(new, status="ok") if new.status == "same" else new
