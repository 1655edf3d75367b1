"""What a trial is asked about one cell, and how the answer changes its verdict. Data only."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from perfsuite.catalog.cell import Cell
from perfsuite.catalog.definitions import Metric
from perfsuite.compare.judge import verdict_of
from perfsuite.records.baseline import Baseline
from perfsuite.records.change import Change, TrialReport, merged
from perfsuite.records.measurement import Measurement
from perfsuite.records.reasons import BySteps, NotAllTried
from perfsuite.records.verdict import Line, Status, Verdict

SUSPECTED = (Status.OPEN, Status.NOT_COMPARED)  # times that a trial decides
UNTRIABLE = (Status.FAILED, Status.MISSING)  # of a time that a side lacks, or that is no number
INNOCENT = (Status.OK, Status.IMPROVED, Status.IMMATERIAL)


def environment_of_test() -> dict[str, str]:
    """The environment variables now, without the one in which pytest names the test."""
    return {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}


@dataclass(frozen=True)
class Asked:
    """A cell of which something is open, or red by something that changed. ``changes`` are all differences from the
    baseline's environment, ``own_code`` is that of perfsuite. ``forced``: all of its times are tried, although nothing
    is open. ``reference`` is a measurement of the other side, if there is one: then nothing is stale. ``variables`` are
    those of its test, whose fixtures may have set some.
    """

    cell: Cell
    measurement: Measurement
    baseline: Baseline
    verdict: Verdict
    changes: Sequence[Change]
    own_code: Change | None = None
    forced: bool = False
    reference: Measurement | None = None
    variables: Mapping[str, str] = field(default_factory=environment_of_test)

    @property
    def launches(self) -> dict[tuple[int, str], Measurement]:
        """What was measured, by side and cell: side 1 is this environment."""
        sides = {0: self.reference, 1: self.measurement}
        return {(side, self.cell.id): launch for side, launch in sides.items() if launch}

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

    def answered(
        self, report: TrialReport, tried: Mapping[str, Line], unanswered: Status, metrics: list[Metric]
    ) -> Verdict:
        """The verdict with the ``tried`` lines: pairs say more about a time than stored ones do, so what they did not
        decide is open, also if the stored times had suggested nothing. ``unanswered`` is the status of a suspected time
        that was not compared.
        """
        lines = [self._line(line, tried, unanswered) for line in self.verdict.lines]
        made = verdict_of(self.measurement, self.baseline, lines, metrics, stale=self.reference is None)
        report = msgspec.structs.replace(report, fixed=self.fixed)
        accept = None if self.reference else made.accept
        why = self.verdict.reason  # such as a launch that ran out of memory, which no line says
        return msgspec.structs.replace(made, reason=why, changed=self.verdict.changed, trial=report, accept=accept)

    def _line(self, line: Line, tried: Mapping[str, Line], unanswered: Status) -> Line:
        new = tried.get(line.metric)
        if new is not None and line.status not in UNTRIABLE:
            decided = self._acquitted(line, new) if new.status in INNOCENT else new
            return msgspec.structs.replace(decided, stored=line.change)
        if line.status != Status.OPEN:
            return line
        if tried:  # pairs of a CPU make no blocks of steps, which tell no more
            return msgspec.structs.replace(line, status=Status.NOT_COMPARED, reason=BySteps())
        return msgspec.structs.replace(line, status=unanswered)

    def _acquitted(self, line: Line, new: Line) -> Line:
        """The trial's line, of a time that it did not find slower. A change that somebody made and that was not tried
        may still be the cause of an alarm.
        """
        if line.status == Status.OPEN and any(change.made for change in self.fixed):
            return msgspec.structs.replace(new, status=Status.INCOMPARABLE, reason=NotAllTried())
        return new


def together(cells: Iterable[Asked]) -> list[tuple[list[Change], list[Asked]]]:
    """The cells in groups that share the other side, each with all changes to revert: those of its cells do not
    contradict each other.
    """
    groups: list[tuple[list[Change], list[Asked]]] = []
    for asked in cells:
        for changes, members in groups:
            alike = members[0].cell.faults == asked.cell.faults and members[0].variables == asked.variables
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
