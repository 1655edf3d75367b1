"""The cells of a study: composed and checked before the first one trains, each measured once, kept as files.

FOLDER/cells/<cell id>.json is written completely after each cell. A later run uses it if the job, the code, the library
versions and the machine are the same; cells that failed or were not supported are tried again.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from perfsuite.catalog.cell import Cell, make_cell, parse_hardware
from perfsuite.catalog.cell_id import CellId, HardwareName
from perfsuite.catalog.definitions import Model, Study, Variant
from perfsuite.catalog.registry import Catalog
from perfsuite.compare.merge_launches import merge
from perfsuite.errors import Refused, UsageError
from perfsuite.features.studies._code import digest_of
from perfsuite.features.studies._study_rows import StudyRow, rounds_of
from perfsuite.launch.hardware_here import describe, missing_packages, other_versions, require_here
from perfsuite.records import codec
from perfsuite.records.formats import FORMAT, timestamp
from perfsuite.records.job import Job
from perfsuite.records.measurement import Measurement
from perfsuite.records.record import Record
from perfsuite.run.runner import Runner, Watch

CELLS = "cells"


class KeptStudy(Record, frozen=True, kw_only=True):
    """The measurements of a cell, one per round, with their job and a digest of the code that made them."""

    format: int
    date: str
    code: str
    job: Job
    measurements: list[Measurement]


@dataclass(frozen=True, kw_only=True)
class PlannedStudy:
    """A row before it is measured: its cell, or the reason why there is none. ``text`` is the cell's id."""

    model: str
    row: Variant
    column: Variant
    text: str
    cell: Cell | None = None
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Workbench:
    """What a study runs on instead of its defaults; None keeps them."""

    models: Sequence[str]
    hardware: str
    micro_batch: int | None = None
    sequence_length: int | None = None


def plan(study: Study, bench: Workbench, catalog: Catalog) -> list[PlannedStudy]:
    """Every row × column of the study on every model, refused ones with their reason.

    Raises UsageError for a request that no cell can satisfy: an unknown name, hardware that is not here.
    """
    where = parse_hardware(bench.hardware, catalog)
    require_here([where], catalog)
    columns = study.columns(where.world_size) if callable(study.columns) else study.columns
    models = [catalog.get("model", name) for name in bench.models]
    own = [one.micro_batch or one.global_batch for one in (*study.rows, *columns)]
    named = all(own[: len(study.rows)]) or all(own[len(study.rows) :])
    if bench.micro_batch and named:
        raise UsageError(f"--micro-batch has no effect here: every cell of {study.name} has its own batch.")
    return [
        _planned(model, row, column, bench, catalog) for model in models for row in study.rows for column in columns
    ]


def _planned(base: Model, row: Variant, column: Variant, bench: Workbench, catalog: Catalog) -> PlannedStudy:
    where = parse_hardware(bench.hardware, catalog)
    ranks = row.ranks or column.ranks or where.ranks
    hardware = str(HardwareName(where.kind, ranks, where.nodes))
    strategy = "+".join([row.engine or column.engine, *row.techniques, *column.techniques])
    planned = functools.partial(PlannedStudy, model=base.name, row=row, column=column)
    text = str(CellId(base.name, strategy, hardware))
    try:
        if ranks > where.ranks:
            raise Refused(f"it needs {ranks} ranks, {where.name} has {where.ranks}.")
        model = _next_larger(base, catalog) if row.larger else base
        text = str(CellId(model.name, strategy, hardware))
        suffixes = _workload(base, row, column, where.nodes * ranks, bench)
        cell = make_cell(model.name, strategy, hardware, catalog, suffixes)
        missing = missing_packages(cell.strategy)
        if missing:
            raise Refused(f"{cell.strategy.name} needs {' and '.join(missing)}, which is not installed here.")
    except Refused as error:
        return planned(text=text, reason=str(error))
    return planned(text=cell.id, cell=cell)


def _workload(base: Model, row: Variant, column: Variant, ranks: int, bench: Workbench) -> list[str]:
    """The suffixes of a cell's id. Raises Refused for a global batch that cannot be divided."""
    micro_batch = row.micro_batch or column.micro_batch or bench.micro_batch or base.workload.micro_batch
    together = row.global_batch or column.global_batch
    if together:
        micro_batch, rest = divmod(together, ranks)
        if rest:
            raise Refused(f"A batch of {together} cannot be divided over {ranks} ranks.")
    length = bench.sequence_length or base.workload.sequence_length
    target = base.workload.target_length
    return [f"b{micro_batch}", f"s{length}", *([f"t{target}"] if target else [])]


def _next_larger(model: Model, catalog: Catalog) -> Model:
    """Of the same family and task. Raises Refused if there is none."""
    larger: list[Model] = [
        other
        for other in catalog.all("model").values()
        if (other.family, other.task) == (model.family, model.task) and other.parameters > model.parameters
    ]
    if not larger:
        raise Refused(f"The catalog has no {model.family} larger than {model.name}.")
    return min(larger, key=lambda other: other.parameters)


class StudyBench:
    """Measures the cells of one study and keeps them in its folder. ``fresh`` ignores earlier results."""

    def __init__(self, runner: Runner, folder: Path, fresh: bool, watch: Watch) -> None:
        self._runner = runner
        self._folder = folder / CELLS
        self._fresh = fresh
        self._watch = watch

    @property
    def catalog(self) -> Catalog:
        return self._runner.catalog

    def path(self, cell: Cell) -> Path:
        """The file of the cell's measurement."""
        return self._folder / f"{cell.id}.json"

    def kept(self, cell: Cell) -> list[Measurement]:
        """The cell's measurements from an earlier run, if they would be made in the same way now."""
        found = None if self._fresh else codec.read_kept(self.path(cell), KeptStudy)
        job = self._runner.job(cell)
        if not found or (found.code, found.job) != (digest_of(job), _comparable(job)):
            return []
        here = describe(cell.hardware, self._runner.catalog)
        return [
            measurement for measurement in found.measurements if measurement.machine == here and _is_sound(measurement)
        ]

    def measure(self, cell: Cell, before: Sequence[Measurement]) -> Measurement:
        """Train the cell and keep the measurement with those of earlier rounds."""
        measurement = self._runner.measure(cell, self._watch)
        job = self._runner.job(cell)
        kept = KeptStudy(
            format=FORMAT,
            date=timestamp(),
            code=digest_of(job),
            job=_comparable(job),
            measurements=[*before, measurement],
        )
        codec.write_text(self.path(cell), codec.encode(kept).decode())
        return measurement


Tell = Callable[
    [PlannedStudy, Measurement | None, bool], None
]  # the row, its measurement, whether an earlier run kept it


def measure_all(planned: Sequence[PlannedStudy], bench: StudyBench, rounds: int, tell: Tell) -> list[StudyRow]:
    """Measure every cell once in each round, so that a temporary slow-down of the machine affects several cells.

    A cell that does not fit has no further round.
    """
    cells = {item.cell.id: item for item in planned if item.cell}
    kept = {name: bench.kept(item.cell) for name, item in cells.items() if item.cell}
    done: dict[str, list[Measurement]] = {name: [] for name in cells}
    for item in planned:
        if item.cell is None:
            tell(item, None, False)
    for number in range(rounds):
        for name, item in cells.items():
            if item.cell is None or any(one.outcome != "fits" for one in done[name]):
                continue
            taken_up = number < len(kept[name])
            one = kept[name][number] if taken_up else bench.measure(item.cell, done[name])
            done[name].append(one)
            tell(item, one, taken_up)
    return [row_of(item, done[item.text] if item.cell else [], bench.catalog) for item in planned]


def row_of(planned: PlannedStudy, measurements: Sequence[Measurement], catalog: Catalog) -> StudyRow:
    """A planned row with its result."""
    metrics = catalog.all("metric").values()
    measurement = merge(measurements, metrics) if measurements else None
    failure = measurement.failure if measurement else None
    return StudyRow(
        model=planned.model,
        row=planned.row.name,
        column=planned.column.name,
        cell=planned.text,
        outcome=measurement.outcome if measurement else "refused",
        reason=failure.message if failure else planned.reason,
        note=planned.row.note,
        measurement=measurement,
        rounds=rounds_of(measurements) if measurement and measurement.outcome == "fits" else (),
    )


def _comparable(job: Job) -> Job:
    """The job as read back from a file, without fields that do not change the measurement."""
    bare = msgspec.structs.replace(job, import_path=[], catalogs=[], model_flop=None)
    return msgspec.json.decode(msgspec.json.encode(bare), type=Job)


def _is_sound(measurement: Measurement) -> bool:
    """Whether it is a result for the installed libraries; what was not supported is tried again."""
    return measurement.outcome in ("fits", "oom") and not other_versions(measurement.versions)
