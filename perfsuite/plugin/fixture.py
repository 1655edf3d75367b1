"""What the fixture gives a test: its cell, and the exception of a red verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from perfsuite.catalog.cell import Cell
from perfsuite.records.measurement import Measurement

if TYPE_CHECKING:
    from perfsuite.plugin.perf_run import PerfRun


class PerfVerdict(Exception):
    """A red verdict; its text is exactly the report's. ``message`` is that of a cell without one."""

    def __init__(self, text: str, message: str = "") -> None:
        super().__init__(text)
        self.message = message

    @classmethod
    def without(cls, cell: Cell, message: str) -> PerfVerdict:
        """Of a cell that has no result."""
        return cls(f"{cell.id}: {message}", message)


@dataclass(frozen=True)
class PerfCell:
    """The value of the fixture: one cell, which the test can measure and compare with its baseline.

    ``absent`` says why its hardware is not here; such a cell is predicted instead of calling its test.
    """

    cell: Cell
    session: PerfRun
    request: pytest.FixtureRequest
    absent: str = ""

    @property
    def id(self) -> str:
        return self.cell.id

    def check(self) -> Measurement:
        """Train the cell, judge it, record it, and raise PerfVerdict if the verdict is red.

        A cell that cannot run on this machine or with these versions is skipped with the reason. If the test also uses
        the ``benchmark`` fixture, the steps' times are in pytest-benchmark's report.
        """
        return self.session.check(self.cell, self.request)
