"""``--perf-against=REF``: every cell is compared with another environment and needs no stored baseline.

REF is a git revision, releases (``transformers==5.22.0 torch==2.12.0``) or a file of constraints.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from packaging.requirements import Requirement

from perfsuite.baselines.accept import baseline_of
from perfsuite.catalog.cell import Cell
from perfsuite.compare.compare import Comparison
from perfsuite.compare.judge import OUTCOME, verdict_of
from perfsuite.compare.rounds import Announcement
from perfsuite.environments import git
from perfsuite.environments.environments import pinned
from perfsuite.errors import FileError, UsageError
from perfsuite.launch.machine import version_of
from perfsuite.launch.places import THIS_MACHINE, Places
from perfsuite.records.change import CODE, Change, ChangeKind
from perfsuite.records.change import Trial as TrialReport
from perfsuite.records.result import Result
from perfsuite.records.verdict import Because, Line, Status
from perfsuite.run.causes import Causes
from perfsuite.run.environment_changes import revision
from perfsuite.run.kept_pairs import KeptPairs
from perfsuite.run.question import Question
from perfsuite.run.red_traces import Tracer
from perfsuite.run.runner import Runner
from perfsuite.run.sides import REVISION
from perfsuite.run.trial import INTERRUPTED, Trial


@dataclass
class Against:
    """Like a Gatekeeper, but compares cells with the environment in which ``changes`` are reverted, all together: exact
    metrics when a cell is checked, times of all cells when they are settled.
    """

    trial: Trial
    changes: Sequence[Change]
    tracer: Tracer | None = None
    places: Places = THIS_MACHINE
    question: Question | None = None
    _checked: dict[str, Cell] = field(default_factory=dict)

    def prepare(self, cells: Sequence[Cell], step_seconds: Mapping[str, float]) -> None:
        """Build the other environment for all cells of the run; ``step_seconds`` are hints by cell. Raises UsageError
        if it cannot be built.
        """
        how, sides = self.trial.how, self.trial.sides
        turns = [cell.id for cell in cells if self.places.at(cell.hardware.nodes).takes_turns]
        self.question = Question(
            how,
            sides.without(self.changes),
            sides.without([]),
            turns,
            step_seconds=step_seconds,
            store=KeptPairs.of(self.changes, how),
            tell=self.trial.rounds,
        )

    def check(self, cell: Cell, faults: Sequence[str] = ()) -> Result:
        """Compare the cell's exact metrics with one launch of each side; its times wait for ``settle``. Raises
        UsageError if a side does not have the cell, or on nodes that cannot take turns.
        """
        if not self.places.at(cell.hardware.nodes).takes_turns:
            raise UsageError("--perf-against takes turns on one machine, not on the nodes of a cluster.")
        if self.question is None or cell.id not in self.question.names:
            self.prepare([cell], {})
        assert self.question is not None
        comparison = self.question.exact(cell.id)
        self._checked[cell.id] = cell
        return self._result(cell, comparison, TrialReport(against=list(self.changes), whole=True))

    def is_open(self, cell: str) -> bool:
        """Whether the cell's verdict waits for ``settle``."""
        return cell in self._checked

    def settle(self) -> Iterator[Result]:
        """The results of the cells that wait: their times as one question, and what made any metric worse."""
        waiting, self._checked, question = self._checked, {}, self.question
        if not waiting or question is None:
            return
        fitting = [name for name in waiting if question.exact(name).verdict.lines]
        self.trial.tell(Announcement(list(waiting), self.changes))
        try:
            question.compare_times(fitting)
        except KeyboardInterrupt:
            question.unfinished = INTERRUPTED
            yield from (self._settled(cell, question, None, []) for cell in waiting.values())
            raise
        worse = {name: self._worse(question.comparison(name)) for name in waiting}
        red = [name for name, metrics in worse.items() if metrics]
        causes = Causes(question, self.trial.sides, self.changes, red, self.trial.goes_on)
        for name, cell in waiting.items():
            yield self._settled(cell, question, causes, worse[name])

    def close(self) -> None:
        """End the rank servers."""
        if self.question:
            self.question.close()

    def _settled(self, cell: Cell, question: Question, causes: Causes | None, worse: Sequence[str]) -> Result:
        comparison = question.comparison(cell.id)
        timed = [line.metric for line in comparison.verdict.lines if line.ratio is not None]
        effects = {name: effect for name in timed if (effect := question.effect(name, cell.id))}
        found, problems = causes.of_cell(cell.id, worse, effects) if causes and worse else ([], [])
        statuses = {line.metric: line.status for line in comparison.verdict.lines}
        undecided = [effect for metric, effect in effects.items() if statuses[metric] == Status.OPEN]
        report = TrialReport(
            against=list(self.changes),
            pairs=len(question.pairs[cell.id]) if cell.id in question.pairs else 0,
            causes=found,
            problems=problems,
            whole=True,
            unfinished=question.unfinished if undecided or not effects else "",
            more_seconds=max(map(question.seconds_to_close, undecided), default=None),
        )
        return self._result(cell, comparison, report)

    @staticmethod
    def _worse(comparison: Comparison) -> list[str]:
        """The metrics that are worse, or the outcome."""
        verdict = comparison.verdict
        if not verdict.lines and verdict.status == Status.REGRESSED:
            return [OUTCOME]
        return [line.metric for line in verdict.lines if line.status == Status.REGRESSED]

    def _result(self, cell: Cell, comparison: Comparison, report: TrialReport) -> Result:
        metrics = self.trial.how.metrics(cell)
        baseline, verdict = baseline_of(comparison.a, "", metrics), comparison.verdict
        if verdict.lines:
            lines = verdict.lines
            if all(line.ratio is None for line in lines):  # no pair yet: whether it is slower is not known
                lines = [_opened(line) for line in lines]
            verdict = verdict_of(comparison.b, baseline, lines, metrics, stale=False)
        elif verdict.status == Status.IMPROVED:  # the other environment cannot run it: nothing was compared
            verdict = msgspec.structs.replace(verdict, status=Status.NOT_COMPARED)
        verdict = msgspec.structs.replace(verdict, changed=[], trial=report, accept=None)
        if self.tracer and not self.is_open(cell.id):
            how = self.trial.how
            with closing(Runner(how.catalog, how.settings)) as runner:
                verdict = self.tracer.attach(verdict, cell, runner, comparison.b, (), self.trial, self.changes)
        return Result(measurement=comparison.b, baseline=baseline, verdict=verdict)


def _opened(line: Line) -> Line:
    """A time without pairs is open."""
    unasked = line.reason is not None and line.reason.because == Because.FEW_PAIRS
    return msgspec.structs.replace(line, status=Status.OPEN) if unasked else line


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
        elif requirement.url:
            yield Change(requirement.name, requirement.url, here)
        elif not requirement.specifier.contains(here, prereleases=True):  # 2.13.0+cpu is 2.13.0
            version = next(part.version for part in requirement.specifier if part.operator == "==")
            yield Change(requirement.name, version, here)


def constraints(path: Path) -> Iterator[Requirement]:
    """The pins of a file of constraints that apply to this machine. Raises FileError for a line that is not a pin."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{path} cannot be read: {error}.") from error
    for number, line in enumerate(lines, 1):
        text = re.sub(r"(^|\s)#.*", "", line).rstrip("\\").strip()  # pip's comments, and its continued lines
        if re.match(r"-(r|c|-requirement|-constraint)\b", text):
            raise FileError(
                f"{path}:{number}: {text!r} refers to another file: give a file that lists the releases itself."
            )
        if not text or text.startswith("-"):
            continue
        try:
            requirement = pinned(text)
        except UsageError as error:
            raise FileError(f"{path}:{number}: {error}") from error
        if requirement.marker is None or requirement.marker.evaluate():
            yield requirement
