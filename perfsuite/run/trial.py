"""The trial: what is open after all cells of a run were measured, as one question.

    times that stored ones cannot answer, and what is red → the baseline's environment and this one → slower, the same,
    or open; if worse, which change is the cause

The baseline's environment is this one without what has changed: the recorded releases, variables and code. Cells with
the same changes, or with changes that fit together, share one. A question that cannot be asked although something
differs is red: its cell is "incomparable".
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from unittest.mock import patch

from perfsuite.catalog.cell import Cell
from perfsuite.compare.judge import OUTCOME
from perfsuite.compare.rounds import Announcement, Round
from perfsuite.errors import PerfsuiteError
from perfsuite.records.change import Change, Problem, TrialReport
from perfsuite.records.measurement import STEP_TIME
from perfsuite.records.verdict import Line, Status, Verdict
from perfsuite.run.asked import INNOCENT, Asked, together
from perfsuite.run.causes import Causes, problem_of
from perfsuite.run.kept_pairs import KeptPairs
from perfsuite.run.measuring import Measuring
from perfsuite.run.question import Question
from perfsuite.run.sides import Sides
from perfsuite.system.deadline import OutOfTime, check

NODES = "the nodes of a cluster cannot run both sides in turns"
INTERRUPTED = "the run was interrupted"


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
            yield asked.cell.id, self._unasked(asked)
        for changes, members in together(asked for asked in cells if asked not in unasked):
            yield from self._settled(changes, members)

    def tell_brought(self, changes: Sequence[Change]) -> None:
        """Say what else moves in the environment without these changes, before anything runs there."""
        side = self.sides.without(changes)
        if side.brought or side.environment.unmet:
            self.tell(Announcement([], changes, brought=side.brought, unmet=side.environment.unmet))

    def _unasked(self, asked: Asked) -> Verdict:
        """No difference can be reverted here. If somebody made one, the question stays without an answer; where only
        parts of the machine differ, no second environment can be tried.
        """
        problems = [] if self.takes_turns(asked.cell) else [Problem(message=NODES)]
        suspects = [change for change in asked.changes if change.is_suspect]
        report = TrialReport(own_code=asked.own_code, problems=problems if suspects else [])
        status = Status.INCOMPARABLE if suspects else Status.OPEN
        return asked.answered(report, {}, status, self.how.metrics(asked.cell))

    def _settled(self, changes: Sequence[Change], members: Sequence[Asked]) -> Iterator[tuple[str, Verdict]]:
        """The verdicts of cells that share the other side."""
        begin, question, ends = time.monotonic(), None, None
        timed = {asked.cell.id: asked.suspected(self._times_of(asked.cell)) for asked in members}
        titles = {
            line.title for member in members for line in member.verdict.lines if line.metric in timed[member.cell.id]
        }
        red = [asked.cell.id for asked in members if asked.worse]
        try:
            check()
            self.tell(Announcement([asked.cell.id for asked in members], changes, sorted(titles)))
            question = self._question(changes, members)
            if members[0].reference is None:  # else it was said when the other side was made
                self.tell_brought(changes)
            with patch.dict(os.environ, members[0].variables, clear=True), closing(question):
                question.launch_once(red)
                question.compare_times([name for name, metrics in timed.items() if metrics])
        except (OutOfTime, KeyboardInterrupt) as error:
            ends = str(error) or INTERRUPTED
            if question is None:
                report = TrialReport(against=list(changes), unfinished=ends)
                yield from self._unanswered(members, report, Status.OPEN)
                return
            question.unfinished = question.unfinished or ends
            if isinstance(error, KeyboardInterrupt):
                yield from ((asked.cell.id, self._verdict(asked, question, None, begin)) for asked in members)
                raise
        except PerfsuiteError as error:
            problem = Problem(message=str(error))
            yield from self._unanswered(members, TrialReport(problems=[problem]), Status.INCOMPARABLE)
            return
        causes = Causes(question, self.sides, changes, red, self._goes_on)
        for asked in members:
            yield asked.cell.id, self._verdict(asked, question, causes, begin)

    def _unanswered(
        self, members: Sequence[Asked], report: TrialReport, status: Status
    ) -> Iterator[tuple[str, Verdict]]:
        """Each cell with the same report, and no line that was tried."""
        for asked in members:
            yield asked.cell.id, asked.answered(report, {}, status, self.how.metrics(asked.cell))

    def _goes_on(self, kept: Sequence[Change]) -> None:
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
            replace(self.sides.without([]), faults=members[0].cell.faults),
            [asked.cell.id for asked in members],
            known={place: launch for asked in members for place, launch in asked.launches.items()},
            step_seconds=steps,
            store=KeptPairs.of(changes, self.how),
            tell=self.rounds,
            share=len(members) / max(len(members), self.how.cells),
        )

    def _times_of(self, cell: Cell) -> list[str]:
        return [metric.name for metric in self.how.metrics(cell) if metric.is_time]

    def _verdict(self, asked: Asked, question: Question, causes: Causes | None, begin: float) -> Verdict:
        """The verdict on one cell by what the question has answered."""
        name, metrics = asked.cell.id, self.how.metrics(asked.cell)
        if name in question.problems:
            report = TrialReport(problems=[Problem(message=str(question.problems[name]))])
            return asked.answered(report, {}, Status.INCOMPARABLE, metrics)
        lines: dict[str, Line] = {}
        if question.is_answered(name):
            compared = question.comparison(name)
            lines = {line.metric: line for line in compared.verdict.lines}
            if not lines and OUTCOME not in asked.worse:
                return asked.answered(TrialReport(problems=[problem_of(compared)]), {}, Status.INCOMPARABLE, metrics)
        timed = {metric: line for metric, line in lines.items() if line.ratio is not None}
        unmoved = [metric for metric in asked.worse if metric in lines and lines[metric].status in INNOCENT]
        effects = {metric: effect for metric in timed if (effect := question.effect(metric, name))}
        convicted = [metric for metric, line in timed.items() if line.status == Status.REGRESSED]
        convicted += [metric for metric in asked.worse if metric not in [*unmoved, *convicted]]
        found, problems = causes.of_cell(name, convicted, effects) if causes and convicted else ([], [])
        undecided = [effect for metric, effect in effects.items() if timed[metric].status == Status.OPEN]
        report = TrialReport(
            against=asked.tried,
            brought=question.a.brought,
            pairs=len(question.pairs[name]) if name in question.pairs else 0,
            seconds=time.monotonic() - begin,
            causes=found,
            problems=problems,
            unmoved=unmoved,
            whole=asked.reference is not None,
            unfinished=question.unfinished if undecided or not effects else "",
            more_seconds=max(map(question.seconds_to_close, undecided), default=None),
        )
        return asked.answered(report, timed, Status.OPEN, metrics)
