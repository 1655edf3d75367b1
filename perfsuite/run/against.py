"""``--perf-against=REF``: every cell is compared with another environment and needs no stored baseline.

REF is a git revision, releases (``transformers==5.22.0 torch==2.12.0``) or a file of constraints.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import msgspec
from packaging.requirements import Requirement

from perfsuite.baselines.accept import baseline_of
from perfsuite.catalog.cell import Cell
from perfsuite.compare.compare import Comparison
from perfsuite.compare.judge import judge, verdict_of
from perfsuite.environments import git
from perfsuite.environments.requirements import constraints, is_pinned, pinned, release_of
from perfsuite.errors import UsageError
from perfsuite.records.baseline import Baseline
from perfsuite.records.change import CODE, Change, ChangeKind, TrialReport
from perfsuite.records.reasons import NoInterval
from perfsuite.records.result import Result
from perfsuite.records.verdict import Line, Status, Verdict
from perfsuite.run.answering import Answering
from perfsuite.run.asked import Asked
from perfsuite.run.environment_changes import revision
from perfsuite.run.question import Question
from perfsuite.run.red_traces import Tracer
from perfsuite.run.runner import Runner
from perfsuite.run.sides import REVISION
from perfsuite.run.trial import Trial
from perfsuite.system.machine import version_of


@dataclass
class Against(Answering):
    """Compares cells with the environment in which ``changes`` are reverted, all together: exact metrics when a cell is
    checked, times of all cells when they are settled.
    """

    trial: Trial
    changes: Sequence[Change]
    tracer: Tracer | None = None
    _exact: Question | None = None

    def prepare(self, cells: Sequence[Cell]) -> None:
        """Build the other environment for all cells of the run. Raises UsageError if it cannot be built."""
        sides, turns = self.trial.sides, [cell.id for cell in cells if self.trial.takes_turns(cell)]
        self._exact = Question(self.trial.how, sides.without(self.changes), sides.without([]), turns)
        self.trial.tell_brought(self.changes)

    def check(self, cell: Cell) -> Result:
        """Compare the cell's exact metrics with one launch of each side; its times wait for ``settle``. Raises
        UsageError if a side does not have the cell, or on nodes that cannot take turns.
        """
        if not self.trial.takes_turns(cell):
            raise UsageError("--perf-against takes turns on one machine, not on the nodes of a cluster.")
        if self._exact is None or cell.id not in self._exact.names:
            self.prepare([cell])
        assert self._exact is not None
        comparison = self._exact.exact(cell.id)
        baseline = baseline_of(comparison.a, "", self.trial.how.metrics(cell))
        verdict = self._verdict(cell, comparison, baseline)
        if verdict.lines:
            asked = Asked(cell, comparison.b, baseline, verdict, self.changes, forced=True, reference=comparison.a)
            self._asked[cell.id] = asked
        return Result(measurement=comparison.b, baseline=baseline, verdict=verdict)

    def settle(self) -> Iterator[Result]:
        """The results of the cells that wait: their times as one question, and what made any metric worse."""
        self.close()
        yield from super().settle()

    def _settled(self, asked: Asked, verdict: Verdict) -> Result:
        launch, how = asked.measurement, self.trial.how
        if self.tracer:
            with closing(Runner(how.catalog, how.settings)) as runner:
                verdict = self.tracer.attach(verdict, asked.cell, runner, launch, self.trial, self.changes)
        return Result(measurement=launch, baseline=asked.baseline, verdict=verdict)

    def close(self) -> None:
        """End the rank servers."""
        if self._exact:
            self._exact.close()

    def _verdict(self, cell: Cell, comparison: Comparison, baseline: Baseline) -> Verdict:
        """By the exact metrics; each time is open until it has pairs."""
        verdict, metrics = comparison.verdict, self.trial.how.metrics(cell)
        if verdict.lines:
            lines = list(map(_opened, verdict.lines))
            verdict = verdict_of(comparison.b, baseline, lines, metrics, stale=False)
        elif verdict.status == Status.REGRESSED:
            verdict = judge(comparison.b, baseline, metrics, strategy=cell.strategy.name)
        elif verdict.status == Status.IMPROVED:  # the other environment cannot run it: nothing was compared
            verdict = msgspec.structs.replace(verdict, status=Status.NOT_COMPARED)
        brought = self.trial.sides.without(self.changes).brought
        report = TrialReport(against=list(self.changes), brought=brought, whole=True)
        return msgspec.structs.replace(verdict, changed=[], trial=report, accept=None)


def _opened(line: Line) -> Line:
    """A time is open until it has pairs."""
    return msgspec.structs.replace(line, status=Status.OPEN) if isinstance(line.reason, NoInterval) else line


def changes_to(reference: str, repository: Path) -> list[Change]:
    """The changes to revert for this reference; none for a revision whose files are those here. Raises UsageError if it
    names nothing, or releases that are installed here.
    """
    reference = reference.strip().removeprefix(REVISION)
    path = Path(reference)
    if path.is_file():
        releases = list(_releases(constraints(path)))
    elif "==" in reference or "://" in reference:
        texts = [reference] if " @ " in reference else reference.split()
        releases = list(_releases((pinned(text) for text in texts), all_here=True))
    else:
        commit = revision(reference, repository)
        return [Change(CODE, commit, "here", ChangeKind.CODE)] if _differs(commit, repository) else []
    if not releases:
        raise UsageError(f"--perf-against={reference}: every release that it names is already installed here.")
    return releases


def _differs(commit: str, repository: Path) -> bool:
    """Whether any file of the repository differs from the commit, or is new."""
    root = git.repository_of(repository)
    changed = git.run(root, "diff", "--name-only", commit)
    return bool(changed or git.run(root, "ls-files", "--others", "--exclude-standard"))


def _releases(requirements: Iterable[Requirement], all_here: bool = False) -> Iterator[Change]:
    """Those that differ from what is installed. A file of constraints may name packages that are not installed."""
    for requirement in requirements:
        here = version_of(requirement.name)
        if not here:
            if all_here:
                raise UsageError(f"--perf-against={requirement}: {requirement.name} is not installed here.")
        elif not is_pinned(requirement, here):
            yield Change(requirement.name, release_of(requirement), here)
