"""The result of an upgrade: the findings, ranked, and what is not known."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

import msgspec

from perfsuite.catalog.cell import Cell
from perfsuite.features.upgrade.effects import Blamed, Finding, Kept, ReleaseEffect, blame, findings, same
from perfsuite.features.upgrade.trying import UpgradeBench
from perfsuite.records.change import Change
from perfsuite.records.formats import FORMAT, timestamp
from perfsuite.records.record import Record
from perfsuite.records.verdict import Status
from perfsuite.run.releases_compared import sentence
from perfsuite.system.deadline import OutOfTime, limit

T = TypeVar("T")
Effects = Callable[[Kept, Cell], list[ReleaseEffect]]
# Whether the times of a cell were compared, or why not: the pairs did not decide; an exact metric got worse; the cell
# does not run with the old releases; the limit of time was used up; nobody wanted it (--minutes 0).
Times = Literal["compared", "undecided", "counts", "failed", "limit", "not asked"]


class UpgradeReport(Record, frozen=True, kw_only=True):
    """The content of ``--json``.

    ``failed`` are the cells that cannot run before the upgrade either, with the reasons. ``times`` says of every cell
    whether they were compared. ``left_out`` are the
    cells that the limit of time left out, each with the attempts that are missing: the changes of each, and none of
    them for the old side. ``launches`` counts what was not known before.
    """

    format: int = FORMAT
    date: str
    base: str
    changes: list[Change]
    cells: list[str]
    findings: list[Finding]
    failed: dict[str, str]
    launches: int
    times: dict[str, Times] = msgspec.field(default_factory=dict)
    left_out: dict[str, list[list[Change]]] = msgspec.field(default_factory=dict)
    limit_seconds: float | None = None

    @property
    def is_worse(self) -> bool:
        return any(finding.worst.bad and not finding.worst.small for finding in self.findings)

    @property
    def is_partial(self) -> bool:
        """Whether the limit of time left out a cell, an attempt or a cell's times."""
        return bool(self.left_out) or (self.limit_seconds is not None and "limit" in self.times.values())

    @property
    def uncompared(self) -> list[str]:
        """The cells of which nothing is compared: the old side is left out, or every attempt."""
        tried = [list(kept) for kept in attempts(self.changes)]
        return [
            cell for cell, missing in self.left_out.items() if [] in missing or all(kept in missing for kept in tried)
        ]

    @property
    def is_empty(self) -> bool:
        """Whether nothing was compared at all."""
        return {*self.cells} <= {*self.failed, *self.uncompared}


def nothing(cells: Sequence[Cell], limit_seconds: float | None) -> UpgradeReport:
    """The report if the limit was used up before it was known what there is to try."""
    names = [cell.id for cell in cells]
    return UpgradeReport(
        date=timestamp(),
        base="",
        changes=[],
        cells=names,
        findings=[],
        failed={},
        launches=0,
        times=dict.fromkeys(names, "limit"),
        left_out={name: [[]] for name in names},
        limit_seconds=limit_seconds,
    )


def judge(
    bench: UpgradeBench, cells: Sequence[Cell], seconds: float, limit_seconds: float | None = None
) -> UpgradeReport:
    """The causes of all effects: in exact metrics, and in times in cells where these got no worse.

    Times are compared for ``seconds`` at most. What a limit of time around it leaves out is in the report, as is how
    long that limit is.
    """
    failed: dict[str, str] = {}
    left: dict[str, list[Kept]] = {}
    blamed: list[Blamed] = []
    silent = []
    times: dict[str, Times] = {}
    for cell in cells:
        try:
            seen = bench.outcome(cell)
        except OutOfTime:
            left[cell.id], times[cell.id] = [(), *attempts(bench.changes)], "limit"
            continue
        found, missing = blame_cell(bench, cell, bench.effects)
        blamed += found
        left |= {cell.id: missing} if missing else {}
        if seen.failure:
            failed[cell.id], times[cell.id] = sentence(seen.failure.alone), "failed"
        elif any(one.effect.bad and not one.effect.small for one in found):
            times[cell.id] = "counts" if seconds else "not asked"
        else:
            silent.append(cell)
    slower, ended = blame_times(bench, silent, seconds)
    times |= ended
    timed = {metric.name for metric in bench.catalog.all("metric").values() if metric.is_time}
    again = {one.effect.cell for one in blamed if one.effect.kind == "runs"}
    return UpgradeReport(
        date=timestamp(),
        base=bench.text(()),
        changes=list(bench.changes),
        cells=[cell.id for cell in cells],
        findings=findings([*blamed, *slower], timed),
        failed={cell: reason for cell, reason in failed.items() if cell not in again},
        launches=bench.launches,
        times={cell.id: times[cell.id] for cell in cells},
        left_out={cell: [list(kept) for kept in missing] for cell, missing in left.items()},
        limit_seconds=limit_seconds,
    )


def attempts(changes: Sequence[T]) -> list[tuple[T, ...]]:
    """Each change alone, and all together."""
    return [*((change,) for change in changes), *([tuple(changes)] if len(changes) > 1 else [])]


def blame_cell(bench: UpgradeBench, cell: Cell, effects: Effects) -> tuple[list[Blamed], list[Kept]]:
    """The causes of what all changes together, or one alone, do to the cell; and what the limit of time left out."""
    changes = tuple(bench.changes)
    left: list[Kept] = []

    def tried(kept: Kept) -> list[ReleaseEffect] | None:
        try:
            return effects(kept, cell)
        except OutOfTime:
            left.append(kept)
            return None

    alone = {change: found for change in changes if (found := tried((change,))) is not None}
    together = tried(changes) if len(changes) > 1 else alone.get(changes[0])

    def needed(effect: ReleaseEffect) -> Kept | None:
        if len(changes) == 2:
            return changes
        without = {change: tried(tuple(other for other in changes if other != change)) for change in changes}
        if None in without.values():
            return None
        return tuple(
            change
            for change in changes
            if not any(same(effect, other) for other in without[change] or () if not other.small)
        )

    return blame(changes, alone, together or [], needed), list(dict.fromkeys(left))


def blame_times(bench: UpgradeBench, cells: Sequence[Cell], seconds: float) -> tuple[list[Blamed], dict[str, Times]]:
    """The causes of slower and faster steps, and what became of each cell's times in ``seconds``. What is known costs
    nothing. A release alone is tried only where all of them change something.
    """
    if not seconds:
        return [], dict.fromkeys([cell.id for cell in cells], "not asked")
    changes = tuple(bench.changes)
    found: list[Blamed] = []
    times: dict[str, Times] = {}
    with limit(seconds, f"the {seconds / 60:g} min for times"):
        with contextlib.suppress(OutOfTime):  # what is not known is found below
            bench.compare_times(changes, cells)
            moving = [cell for cell in cells if bench.has_times(changes, cell) and bench.times(changes, cell)]
            for change in changes:
                bench.compare_times((change,), moving)
        for cell in cells:
            try:
                moved = bench.times(changes, cell)
                pairs = bench.pairs(changes, cell)
            except OutOfTime:
                times[cell.id] = "limit"
                continue
            found += blame_cell(bench, cell, bench.times)[0] if moved else []
            decided = moved or (pairs.times and pairs.verdict.status != Status.OPEN)
            times[cell.id] = "compared" if decided else "undecided"
    return found, times
