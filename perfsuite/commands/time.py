"""``perfsuite time``: how long a training takes, from the steps of a measured cell."""

import argparse
import os
from collections.abc import Iterable
from pathlib import Path

from perfsuite.cell import parse_cell
from perfsuite.commands._base import (
    add_baselines,
    add_catalog,
    add_kernels,
    add_length,
    catalog_of,
    length_of,
    store_of,
)
from perfsuite.errors import UsageError
from perfsuite.gate.launches import merge
from perfsuite.gate.store import Store
from perfsuite.records import codec
from perfsuite.records.measurement import Measurement
from perfsuite.studies._cells import Kept
from perfsuite.studies._rows import rounds_of, time_to_train
from perfsuite.units import show_duration, show_seconds

HELP = "How long a training takes, from a measured cell."


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("--cell", required=True, metavar="ID", help="The cell, e.g. t5_tiny-zero3+bf16-cpu_x2.")
    add_length(parser)
    parser.add_argument("--studies", type=Path, default=Path("perf-studies"), metavar="FOLDER", help=_FOLDER)
    add_baselines(parser)
    add_kernels(parser)
    add_catalog(parser)


_FOLDER = "Folder of the studies' cells (perf-studies)."


def run(arguments: argparse.Namespace) -> int:
    """Print the time, its uncertainty and its source."""
    catalog = catalog_of(arguments)
    cell = parse_cell(arguments.cell, catalog).id
    length = length_of(arguments)
    store = store_of(arguments)
    found = list(_measured(cell, arguments.studies, store))
    if not found:
        raise UsageError(
            f"{cell} is measured neither in {arguments.studies}/ nor in {store.root}/: run a study that has "
            "it, or pytest --perf --perf-update=new."
        )
    date, path, measurements = max(found, key=lambda item: item[0])
    measurement = merge(measurements, catalog.all("metric").values())
    rounds = rounds_of(measurements)
    training = time_to_train(measurement, rounds, length) if measurement.outcome == "fits" else None
    if training is None:
        raise UsageError(f"{cell} has no step time in {path}: its outcome is {measurement.outcome}.")
    count = f"{sum(map(len, rounds))} measured in {len(rounds)} round" + "s" * (len(rounds) > 1)
    machine = f"{measurement.machine.device}, {measurement.machine.cores} cores"
    print(f"{cell}: {show_duration(training.seconds, training.uncertainty_seconds)} for {length}")
    print(f"  {training.steps:,} steps; {count}, median {_median(measurement)}; ± is 95 % of their spread")
    print(f"  measured {date} on {machine}: {os.path.relpath(path)}")
    return 0


def _measured(cell: str, studies: Path, store: Store) -> Iterable[tuple[str, Path, list[Measurement]]]:
    """Date, file and measurements of every file that has the cell."""
    for path in sorted(studies.glob(f"*/cells/{cell}.json")):
        kept = codec.read(path, Kept)
        yield kept.date, path, kept.measurements
    baseline = store.load(cell)
    if baseline is not None:
        yield baseline.date, store.path(cell), [baseline.measurement]


def _median(measurement: Measurement) -> str:
    return show_seconds(measurement.readings["step_time_seconds"].value)
