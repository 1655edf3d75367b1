"""How all cells of one run are measured and compared: one frozen object, made once."""

from dataclasses import dataclass
from pathlib import Path

from perfsuite.catalog.cell import Cell
from perfsuite.catalog.definitions import Metric
from perfsuite.catalog.registry import Catalog
from perfsuite.compare.terms import Terms, terms_of
from perfsuite.records.progress import Progress
from perfsuite.run.runner import Settings, Watch


def unwatched(cell: Cell, progress: list[Progress], seconds: float) -> None:
    """A no-op progress callback."""


@dataclass(frozen=True)
class Measuring:
    """``repository`` has the user's code. ``tolerance`` is the smallest relative difference of a time that must be
    detected, that of the hardware's class if None. ``cells`` is the number of cells in the run: its error rates are
    those of all of them together. ``watch`` is called while ranks work.
    """

    catalog: Catalog
    settings: Settings
    repository: Path
    watch: Watch = unwatched
    tolerance: float | None = None
    cells: int = 1

    def terms(self, cell: Cell) -> Terms:
        """The terms on which the cell's times are compared."""
        return terms_of(cell.id, self.tolerance or cell.hardware.time_tolerance).of_run(self.cells)

    def metrics(self, cell: Cell) -> list[Metric]:
        """The metrics of the cell's process."""
        return self.catalog.metrics(cell.strategy.engine.process)
