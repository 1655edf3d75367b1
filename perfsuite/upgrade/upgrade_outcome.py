"""The result of an upgrade: the findings, ranked, and what is not known."""

import time
from collections.abc import Callable, Sequence

from perfsuite.catalog.cell import Cell
from perfsuite.records.change import Change
from perfsuite.records.formats import timestamp
from perfsuite.records.record import Record
from perfsuite.run.releases_compared import sentence
from perfsuite.upgrade.effects import Blamed, Effect, Finding, Kept, blame, findings, same
from perfsuite.upgrade.trying import Bench

FORMAT = 2
Effects = Callable[[Kept, Cell], list[Effect]]


class UpgradeReport(Record, frozen=True, kw_only=True):
    """The content of ``--json``. Format 2: 2026-11, changes and effects as data; 1: 2026-11, first.

    ``failed`` are the cells that cannot run before the upgrade either, with the reasons. ``undecided`` and ``untimed``
    are cells whose times are not known. ``launches`` counts what was not known before.
    """

    format: int = FORMAT
    date: str
    base: str
    changes: list[Change]
    cells: list[str]
    floor: float = 0.0  # of older files: now each metric has its materiality
    findings: list[Finding]
    failed: dict[str, str]
    undecided: list[str]
    untimed: list[str]
    launches: int

    @property
    def is_worse(self) -> bool:
        return any(one.worst.bad and not one.worst.small for one in self.findings)


def judge(bench: Bench, cells: Sequence[Cell], seconds: float) -> UpgradeReport:
    """The causes of all effects: in exact metrics, and in times in cells where these got no worse.

    No comparison of times starts after ``seconds``.
    """
    failed = {one.id: sentence(seen.failure.alone) for one in cells if (seen := bench.outcome(one)).failure}
    blamed: list[Blamed] = []
    silent = []
    for cell in cells:
        found = blame_cell(bench, cell, bench.effects)
        blamed += found
        if cell.id not in failed and not any(one.effect.bad and not one.effect.small for one in found):
            silent.append(cell)
    slower, undecided, untimed = blame_times(bench, silent, seconds)
    timed = {metric.name for metric in bench.catalog.all("metric").values() if metric.is_time}
    again = {one.effect.cell for one in blamed if one.effect.kind == "runs"}
    return UpgradeReport(
        date=timestamp(),
        base=bench.text(()),
        changes=list(bench.changes),
        cells=[cell.id for cell in cells],
        findings=findings([*blamed, *slower], timed),
        failed={cell: reason for cell, reason in failed.items() if cell not in again},
        undecided=undecided,
        untimed=untimed,
        launches=bench.launches,
    )


def attempts(changes: Sequence[Change]) -> list[Kept]:
    """Each change alone, and all together."""
    return [*((one,) for one in changes), *([tuple(changes)] if len(changes) > 1 else [])]


def blame_cell(bench: Bench, cell: Cell, effects: Effects) -> list[Blamed]:
    """The causes of what all changes together, or one alone, do to the cell."""
    changes = tuple(bench.changes)
    alone = {one: effects((one,), cell) for one in changes}
    together = effects(changes, cell)

    def needed(effect: Effect) -> Kept:
        if len(changes) == 2:
            return changes
        without = {one: effects(tuple(other for other in changes if other != one), cell) for one in changes}
        return tuple(
            one for one in changes if not any(same(effect, other) for other in without[one] if not other.small)
        )

    return blame(changes, alone, together, needed)


def blame_times(bench: Bench, cells: Sequence[Cell], seconds: float) -> tuple[list[Blamed], list[str], list[str]]:
    """The causes of slower and faster steps, the cells whose times stay undecided, and those that the budget of
    ``seconds`` does not reach. What is known costs nothing. A release alone is tried only where all of them change
    something.
    """
    changes, begin = tuple(bench.changes), time.monotonic()
    found: list[Blamed] = []
    undecided, left = [], []
    for cell in cells:
        if time.monotonic() - begin >= seconds:
            left.append(cell.id)
            continue
        if bench.times(changes, cell):
            found += blame_cell(bench, cell, bench.times)
        elif bench.pairs(changes, cell).verdict.status == "undecided":
            undecided.append(cell.id)
    return found, undecided, left
