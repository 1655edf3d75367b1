"""The results of a first GPU: one folder with a file for each kind, each line written as soon as it is known."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from first_gpu_parts.cells import CELLS
from perfsuite.catalog.cell import Cell, parse_cell
from perfsuite.catalog.registry import Catalog
from perfsuite.errors import UsageError
from perfsuite.features.predict.prediction import Prediction
from perfsuite.launch.hardware_here import local_hardware
from perfsuite.records import codec, report_lines
from perfsuite.records.record import Record
from perfsuite.records.result import Result
from perfsuite.system.machine import emulates, gpus

T = TypeVar("T", bound=Record)
NO_TIMES = "an emulated GPU has no times"


class NotDone(Record, frozen=True, kw_only=True):
    """An item of a part that was tried and has no result, with the reason. It is not tried again."""

    part: str
    item: str
    why: str


class PartRun(Record, frozen=True, kw_only=True):
    """One start of a part: when it began, the seconds that it took, the most that it had, and how it ended.
    ``stopped``: at its limit.
    """

    part: str
    begin: str
    seconds: float
    limit_seconds: float
    exit_status: int
    stopped: bool


class Probe(Record, frozen=True, kw_only=True):
    """One real run of a cell whose tensors may take ``capacity_bytes`` of the device; ``fits`` or out of memory."""

    cell: str
    capacity_bytes: int
    fits: bool


class Overhead(Record, frozen=True, kw_only=True):
    """A timed step of a script with perfsuite's meters, divided by one without: by the clock, and in processor time.
    ``different_losses``: of how many steps the loss differs.
    """

    item: str
    time_ratio: float
    processor_ratio: float
    different_losses: int


@dataclass(frozen=True)
class Results:
    """The folder, the ids of the cells, and the GPU by its name in the catalog (``h200_x1``)."""

    folder: Path
    names: tuple[str, ...]
    hardware: str
    emulated: bool
    catalog: Catalog

    @classmethod
    def here(cls, folder: Path, names: Sequence[str] | None) -> "Results":
        """Of this machine's first GPU. Raises UsageError without one that the catalog knows, and for a wrong cell."""
        catalog = Catalog()
        known = local_hardware(catalog)
        if not known:
            seen = ", ".join(gpu.name for gpu in gpus()) or "no GPU"
            raise UsageError(f"No GPU of the catalog is here, but {seen}: perfsuite list names those that it knows.")
        cells = tuple(parse_cell(name, catalog).id for name in names or [one.format(known[0]) for one in CELLS])
        return cls(folder, cells, known[0], emulates(), catalog)

    def cell(self, name: str) -> Cell:
        """The cell of that id."""
        return parse_cell(name, self.catalog)

    def lines(self, kind: type[T]) -> list[T]:
        """All results of that kind, oldest first. Raises FileError for a file that was changed by hand."""
        path = self._path(kind)
        return codec.read_lines(path, kind) if path.exists() else []

    def keep(self, record: Record) -> None:
        """Add a result. The file is replaced as a whole, so a kill leaves the old one or the new one."""
        codec.write_lines(self._path(type(record)), [*self.lines(type(record)), record], 0)

    def without_result(self, part: str) -> dict[str, str]:
        """The items that were tried and have no result, with the reasons."""
        return {one.item: one.why for one in self.lines(NotDone) if one.part == part}

    def measured(self) -> dict[str, Result]:
        """The cells that were measured, by id; of several the last."""
        reports = sorted(self.folder.glob("cells_*.jsonl"))
        return {one.cell: one for path in reports for one in report_lines.read_measured(path) if one.cell in self.names}

    def predictions(self) -> dict[str, Prediction]:
        """The cells that were predicted, by id."""
        return {one.cell: one for one in self.lines(Prediction) if one.cell in self.names}

    def _path(self, kind: type[Record]) -> Path:
        return self.folder / f"{kind.__name__}.jsonl"
