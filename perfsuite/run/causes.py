"""The search for causes: which of several changes made cells worse. Each attempt is a Question of its own, in which
side B has only some of the changes.

All cells whose exact metrics are worse are launched together in each attempt: an environment is started once for them.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

import msgspec

from perfsuite.compare.compare import Comparison
from perfsuite.compare.grid_groups import Effect
from perfsuite.compare.judge import OUTCOME
from perfsuite.errors import PerfsuiteError
from perfsuite.records.change import Cause, Change, Problem
from perfsuite.records.reasons import WithMessage
from perfsuite.records.verdict import Status, Verdict
from perfsuite.run.culprits import Found, culprits
from perfsuite.run.question import A, Question
from perfsuite.run.sides import Sides
from perfsuite.system.deadline import OutOfTime

MOST_BLAMED = 8  # cells that are tried again with each change alone
INNOCENT = (Status.OK, Status.IMPROVED, Status.IMMATERIAL)
Attempts = dict[tuple[Change, ...], Question]


@dataclass
class Causes:
    """``question`` was answered with all ``changes`` on side B; ``red`` are the cells with worse exact metrics.
    ``tell`` hears of the changes that each attempt keeps.
    """

    question: Question
    sides: Sides
    changes: Sequence[Change]
    red: Sequence[str] = ()
    tell: Callable[[Sequence[Change]], None] = lambda kept: None
    _of_exact: Attempts = field(default_factory=dict)
    _of_times: dict[tuple[str, tuple[str, ...]], list[Cause]] = field(default_factory=dict)

    def of_cell(
        self, name: str, metrics: Sequence[str], timed: Mapping[str, Effect]
    ) -> tuple[list[Cause], list[Problem]]:
        """What made these metrics of the cell worse, and what could not be tried: a time with all cells that share its
        effect in ``timed``, any other by launches of this cell.
        """
        causes: list[Cause] = []
        problems: list[Problem] = []
        try:
            for metric in metrics:
                if metric in timed:
                    causes += self._cause_of_time(metric, timed[metric])
            exact = [metric for metric in metrics if metric not in timed]
            if exact:
                causes += culprits(self.changes, exact, lambda kept: self._attempt(name, exact, kept, problems))
        except OutOfTime as error:
            problems.append(Problem(message=str(error)))
        return joined(causes), problems

    def _attempt(self, name: str, metrics: Sequence[str], kept: Sequence[Change], problems: list[Problem]) -> Found:
        """Whether each metric is worse with the ``kept`` changes alone."""
        try:
            made = self._question_with(kept).exact(name)
        except OutOfTime:
            raise
        except PerfsuiteError as error:
            problems.append(Problem(message=str(error), kept=list(kept)))
            return {}
        if not made.verdict.lines and OUTCOME not in metrics:
            problems.append(msgspec.structs.replace(problem_of(made), kept=list(kept)))
        return {metric: _is_worse(made.verdict, metric) for metric in metrics}

    def _question_with(self, kept: Sequence[Change]) -> Question:
        """The attempt's answer for all red cells, launched once."""
        key = tuple(kept)
        if key not in self._of_exact:
            self.tell(kept)
            whole = self.question
            known = {place: launch for place, launch in whole.known.items() if place[0] == A}
            side = self.sides.with_only(kept, self.changes)
            attempt = Question(whole.how, whole.a, replace(side, faults=whole.b.faults), self.red, known=known)
            with closing(attempt):
                attempt.launch_once()
            self._of_exact[key] = attempt
        return self._of_exact[key]

    def _cause_of_time(self, metric: str, effect: Effect) -> list[Cause]:
        """The causes of what cells share, which some of them tell."""
        key = metric, effect.cells
        if key not in self._of_times:
            whole = self.question
            names = [name for name in whole.names if name in effect.cells][:MOST_BLAMED]

            def attempt(kept: Sequence[Change]) -> Found:
                self.tell(kept)
                side = self.sides.with_only(kept, self.changes)
                steps = whole.step_seconds
                made = Question(whole.how, whole.a, replace(side, faults=whole.b.faults), names, step_seconds=steps)
                made.compare_times()
                statuses = {one.status for one in made.pools[metric].effects} if metric in made.pools else set()
                unknown = Status.OPEN in statuses or not statuses
                return {metric: True if Status.REGRESSED in statuses else None if unknown else False}

            self._of_times[key] = culprits(self.changes, [metric], attempt)
        return self._of_times[key]


def joined(causes: Sequence[Cause]) -> list[Cause]:
    """The causes, one for all metrics that share it."""
    metrics: dict[str, list[str]] = {}
    first: dict[str, Cause] = {}
    for cause in causes:
        key = repr(msgspec.structs.replace(cause, metrics=[]))
        first.setdefault(key, cause)
        metrics.setdefault(key, []).extend(cause.metrics)
    return [msgspec.structs.replace(cause, metrics=metrics[key]) for key, cause in first.items()]


def problem_of(comparison: Comparison) -> Problem:
    """Why the two sides of a comparison could not be compared."""
    why = comparison.verdict.reason
    message = why.message if isinstance(why, WithMessage) else ""
    sides: dict[str, str] = {"A": comparison.a.outcome, "B": comparison.b.outcome}
    ended = {side: outcome for side, outcome in sides.items() if outcome != "fits"}
    return Problem(message=message or comparison.verdict.status, ended=ended)


def _is_worse(verdict: Verdict, metric: str) -> bool | None:
    """Whether the metric is worse; None if unknown."""
    if metric == OUTCOME:
        known: dict[Status, bool | None] = {Status.REGRESSED: True, Status.FAILED: None}
        return known.get(verdict.status, False) if not verdict.lines else False
    status = next((line.status for line in verdict.lines if line.metric == metric), None)
    if status == Status.REGRESSED:
        return True
    return False if status in INNOCENT else None
