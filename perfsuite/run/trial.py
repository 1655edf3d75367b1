"""The trial: what is open after all cells of a run were measured, as one question.

    times that stored ones cannot answer, and what is red → the baseline's environment and this one → slower, the same,
    or open; if worse, which change is the cause

The baseline's environment is this one without what has changed: the recorded releases, variables and code. Cells with
the same changes, or with changes that fit together, share one. A question that cannot be asked although something
differs is red: its cell is "incomparable".
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from unittest.mock import patch

import msgspec

from perfsuite.catalog.cell import Cell
from perfsuite.compare.judge import verdict_of
from perfsuite.compare.rounds import Announcement, Round
from perfsuite.errors import PerfsuiteError
from perfsuite.records.baseline import Baseline
from perfsuite.records.change import Change, Problem, merged
from perfsuite.records.change import Trial as TrialReport
from perfsuite.records.deadline import OutOfTime, check
from perfsuite.records.measurement import STEP_TIME, Measurement
from perfsuite.records.verdict import Because, Line, Status, Verdict, reason
from perfsuite.run.causes import Causes, problem_of
from perfsuite.run.kept_pairs import KeptPairs
from perfsuite.run.measuring import Measuring
from perfsuite.run.question import A, B, Question
from perfsuite.run.sides import Sides

SUSPECTED = (Status.OPEN, Status.NOT_COMPARED)  # times that a trial decides
NODES = "the nodes of a cluster cannot run both sides in turns"
INTERRUPTED = "the run was interrupted"
UNTRIABLE = (Status.FAILED, Status.MISSING)  # of a time that a side lacks, or that is no number
INNOCENT = (Status.OK, Status.IMPROVED, Status.IMMATERIAL)


def environment_of_test() -> dict[str, str]:
    """The environment variables now, without the one in which pytest names the test."""
    return {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}


@dataclass(frozen=True)
class Asked:
    """A cell of which something is open, or red by something that changed. ``changes`` are all differences from the
    baseline's environment, ``own_code`` is that of perfsuite. ``forced``: all of its times are tried, although nothing
    is open. ``variables`` are those of its test, whose fixtures may have set some.
    """

    cell: Cell
    measurement: Measurement
    baseline: Baseline
    verdict: Verdict
    changes: Sequence[Change]
    own_code: Change | None = None
    forced: bool = False
    faults: Sequence[str] = ()
    variables: Mapping[str, str] = field(default_factory=environment_of_test)

    @property
    def tried(self) -> list[Change]:
        """The changes that can be reverted."""
        return [change for change in self.changes if not change.fixed]

    @property
    def fixed(self) -> list[Change]:
        """The changes that cannot."""
        return [change for change in self.changes if change.fixed]

    @property
    def worse(self) -> list[str]:
        """The metrics that are worse by themselves."""
        return [line.metric for line in self.verdict.lines if line.status == Status.REGRESSED]

    def suspected(self, timed: Iterable[str]) -> list[str]:
        """The times that are to be tried."""
        names, forced = set(timed), self.forced and not self.worse
        is_open = any(line.status == Status.OPEN for line in self.verdict.lines)
        if not (is_open or forced):
            return []
        return [
            line.metric for line in self.verdict.lines if line.metric in names and (forced or line.status in SUSPECTED)
        ]


@dataclass
class Trial:
    """``tell`` hears of each trial that begins, ``rounds`` of each round of its pairs. ``takes_turns`` says whether a
    cell's two sides can run in turns where it runs.
    """

    how: Measuring
    tell: Callable[[Announcement], None] = lambda announcement: None
    rounds: Callable[[Round], None] = lambda progress: None
    takes_turns: Callable[[Cell], bool] = lambda cell: True
    sides: Sides = field(init=False)

    def __post_init__(self) -> None:
        self.sides = Sides(self.how.catalog, self.how.repository)

    def settle(self, cells: Sequence[Asked]) -> Iterator[tuple[str, Verdict]]:
        """The verdicts of these cells, by their ids. If time is used up, what is not decided stays open."""
        unasked = [asked for asked in cells if not asked.tried or not self.takes_turns(asked.cell)]
        for asked in unasked:
            yield asked.cell.id, _Answer(asked, self.how).unasked(self.takes_turns(asked.cell))
        rest = [asked for asked in cells if asked not in unasked]
        for changes, members in together(rest):
            yield from self._settled(changes, members)

    def _settled(self, changes: Sequence[Change], members: Sequence[Asked]) -> Iterator[tuple[str, Verdict]]:
        """The verdicts of cells that share the other side."""
        begin, question = time.monotonic(), None
        timed = {asked.cell.id: asked.suspected(self._times_of(asked.cell)) for asked in members}
        titles = {line.title for one in members for line in one.verdict.lines if line.metric in timed[one.cell.id]}
        red = [asked.cell.id for asked in members if asked.worse]
        try:
            check()
            self.tell(Announcement([asked.cell.id for asked in members], changes, sorted(titles)))
            question = self._question(changes, members)
            with patch.dict(os.environ, members[0].variables, clear=True):
                question.launch_once(red)
                question.compare_times([name for name, metrics in timed.items() if metrics])
        except OutOfTime as error:
            if question is None:
                yield from ((asked.cell.id, _Answer(asked, self.how).out_of_time(str(error))) for asked in members)
                return
            question.unfinished = question.unfinished or str(error)
        except PerfsuiteError as error:
            problem = Problem(message=str(error))
            yield from ((asked.cell.id, _Answer(asked, self.how).not_compared(problem)) for asked in members)
            return
        except KeyboardInterrupt:
            if question is not None:
                question.unfinished = INTERRUPTED
                for asked in members:
                    yield asked.cell.id, self._verdict(_Answer(asked, self.how), question, None, begin)
            raise
        finally:
            if question is not None:
                question.close()
        causes = Causes(question, self.sides, changes, red, self.goes_on)
        for asked in members:
            answer = _Answer(asked, self.how)
            yield asked.cell.id, self._verdict(answer, question, causes, begin)

    def goes_on(self, kept: Sequence[Change]) -> None:
        """Say that the search for a cause goes on with these changes alone."""
        self.tell(Announcement([], kept=kept))

    def _question(self, changes: Sequence[Change], members: Sequence[Asked]) -> Question:
        """This environment against the one without these changes. Raises UsageError if that cannot be built."""
        steps = {
            asked.cell.id: float(asked.measurement.readings[STEP_TIME].value)
            for asked in members
            if STEP_TIME in asked.measurement.readings
        }
        return Question(
            self.how,
            self.sides.without(changes),
            self.sides.without([]),
            [asked.cell.id for asked in members],
            faults=((), members[0].faults),
            known={(B, asked.cell.id): asked.measurement for asked in members},
            step_seconds=steps,
            store=KeptPairs.of(changes, self.how),
            tell=self.rounds,
            share=len(members) / max(len(members), self.how.cells),
        )

    def _times_of(self, cell: Cell) -> list[str]:
        return [metric.name for metric in self.how.metrics(cell) if metric.is_time]

    def _verdict(self, answer: "_Answer", question: Question, causes: Causes | None, begin: float) -> Verdict:
        """The verdict on one cell by what the question has answered."""
        asked, name = answer.asked, answer.asked.cell.id
        if name in question.problems:
            return answer.not_compared(Problem(message=str(question.problems[name])))
        lines: dict[str, Line] = {}
        unmoved: list[str] = []
        if question.pairs.get(name) or (A, name) in question.known:
            compared = question.comparison(name)
            if not compared.verdict.lines:
                return answer.not_compared(problem_of(compared))
            by_metric = {line.metric: line for line in compared.verdict.lines}
            lines = {metric: line for metric, line in by_metric.items() if line.ratio is not None}
            answer.pairs = len(question.pairs[name]) if name in question.pairs else 0
            unmoved = [metric for metric in asked.worse if metric in by_metric and by_metric[metric].status in INNOCENT]
        effects = {metric: effect for metric in lines if (effect := question.effect(metric, name))}
        convicted = [metric for metric, line in lines.items() if line.status == Status.REGRESSED]
        convicted += [metric for metric in asked.worse if metric not in unmoved]
        found, problems = causes.of_cell(name, convicted, effects) if causes and convicted else ([], [])
        undecided = [effect for metric, effect in effects.items() if lines[metric].status == Status.OPEN]
        answer.report = TrialReport(
            against=asked.tried,
            pairs=answer.pairs,
            seconds=time.monotonic() - begin,
            causes=found,
            problems=problems,
            unmoved=unmoved,
            unfinished=question.unfinished if undecided or not effects else "",
            more_seconds=max(map(question.seconds_to_close, undecided), default=None),
        )
        return answer.with_lines(lines)


def together(cells: Iterable[Asked]) -> list[tuple[list[Change], list[Asked]]]:
    """The cells in groups that share the other side, each with all changes to revert: those of its cells do not
    contradict each other.
    """
    groups: list[tuple[list[Change], list[Asked]]] = []
    for asked in cells:
        for changes, members in groups:
            alike = members[0].faults == asked.faults and members[0].variables == asked.variables
            if alike and (both := _union(changes, asked.tried)) is not None:
                changes[:] = both
                members.append(asked)
                break
        else:
            groups.append((list(asked.tried), [asked]))
    return groups


def _union(some: Sequence[Change], others: Sequence[Change]) -> list[Change] | None:
    """All changes of both; None if they contradict each other."""
    union = {(change.kind, change.name): change for change in some}
    for change in others:
        known = union.get((change.kind, change.name))
        both = change if known is None else merged(known, change)
        if both is None:
            return None
        union[change.kind, change.name] = both
    return list(union.values())


@dataclass
class _Answer:
    """The verdict on a cell after its trial. ``report`` is what the trial found, ``pairs`` those of the cell."""

    asked: Asked
    how: Measuring
    report: TrialReport = field(default_factory=TrialReport)
    pairs: int = 0

    def unasked(self, takes_turns: bool) -> Verdict:
        """No difference can be reverted here: if one exists, the question stays without an answer."""
        self.report = TrialReport(own_code=self.asked.own_code)
        if not self.asked.changes:
            return self._made({}, Status.OPEN)
        problems = [] if takes_turns else [Problem(message=NODES)]
        self.report = TrialReport(problems=problems, own_code=self.asked.own_code)
        return self._made({}, Status.INCOMPARABLE)

    def not_compared(self, problem: Problem) -> Verdict:
        """The other side cannot be made, or cannot run."""
        self.report = TrialReport(problems=[problem])
        return self._made({}, Status.INCOMPARABLE)

    def out_of_time(self, why: str) -> Verdict:
        """Time was used up before anything was asked."""
        self.report = TrialReport(against=self.asked.tried, unfinished=why)
        return self._made({}, Status.OPEN)

    def with_lines(self, tried: Mapping[str, Line]) -> Verdict:
        """The verdict with the lines from the trial, whose pairs say more about a time than stored ones do: what they
        did not decide is open, also if the stored times had suggested nothing.
        """
        return self._made(tried, Status.OPEN)

    def _made(self, tried: Mapping[str, Line], unanswered: Status) -> Verdict:
        """``unanswered`` is the status of a suspected time that the trial did not compare."""
        lines = []
        for line in self.asked.verdict.lines:
            new = tried.get(line.metric)
            if new is not None and line.status not in UNTRIABLE:
                decided = self._acquitted(line, new) if new.status in INNOCENT else new
                line = msgspec.structs.replace(decided, stored=line.change)
            elif line.status == Status.OPEN and tried:  # pairs of a CPU make no blocks of steps, which tell no more
                line = msgspec.structs.replace(line, status=Status.NOT_COMPARED, reason=reason(Because.BY_STEPS))
            elif line.status == Status.OPEN:
                line = msgspec.structs.replace(line, status=unanswered)
            lines.append(line)
        made = verdict_of(self.asked.measurement, self.asked.baseline, lines, self.how.metrics(self.asked.cell))
        report = msgspec.structs.replace(self.report, fixed=self.asked.fixed)
        return msgspec.structs.replace(made, changed=self.asked.verdict.changed, trial=report)

    def _acquitted(self, line: Line, new: Line) -> Line:
        """The trial's line, of a time that it did not find slower. A change that somebody made and that was not tried
        may still be the cause of an alarm.
        """
        untried = [change for change in self.asked.fixed if change.made]
        if untried and line.status == Status.OPEN:
            return msgspec.structs.replace(new, status=Status.INCOMPARABLE, reason=reason(Because.NOT_ALL_TRIED))
        return new
