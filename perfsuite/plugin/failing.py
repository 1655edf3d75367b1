"""Which results fail their tests: the status, consent and the quarantine decide."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from perfsuite.catalog.project import Project, today
from perfsuite.records.formats import timestamp
from perfsuite.records.result import CellResult
from perfsuite.records.verdict import OPEN, RED
from perfsuite.run.gatekeeper import commit_of

Marked = TypeVar("Marked", bound=CellResult)


@dataclass(frozen=True)
class Failing:
    """The rule of one run. With ``open_fails`` a cell that is open fails, too; ``baselines`` is their folder."""

    project: Project
    baselines: Path
    open_fails: bool

    def fails(self, result: CellResult) -> bool:
        """Whether its verdict fails a test, unless it is accepted or the cell is in quarantine."""
        status = result.verdict.status
        return status in RED or (status in OPEN and self.open_fails)

    def is_red(self, result: CellResult) -> bool:
        """Whether its test fails."""
        return self.fails(result) and not result.updated and not result.quarantined

    def marked(self, result: Marked) -> Marked:
        """The result with its date and commit, and with the cell's quarantine if it fails."""
        verdict, until = result.verdict, ""
        entry = self.project.quarantine_of(verdict.cell)
        if entry and self.fails(result):
            if entry.holds(today()):
                until = str(entry.until)
            else:
                verdict = msgspec.structs.replace(verdict, quarantine_ended=str(entry.until))
        date, commit = timestamp(), commit_of(self.baselines)
        return msgspec.structs.replace(result, verdict=verdict, date=date, commit=commit, quarantined=until)
