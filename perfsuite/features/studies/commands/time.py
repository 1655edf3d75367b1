"""``perfsuite time``: how long a training takes, from the steps of a measured cell, or from a trace of its code."""

import argparse
import math
import os
from collections.abc import Iterable
from pathlib import Path

from rich.table import Table

from perfsuite.baselines.store import Store
from perfsuite.catalog.cell import Cell, parse_cell
from perfsuite.catalog.registry import Catalog
from perfsuite.cli.shared_options import add_shared, catalog_of, store_of, value_of
from perfsuite.compare.merge_launches import merge
from perfsuite.errors import Refused, UsageError
from perfsuite.features.predict.memory_table import batches
from perfsuite.features.predict.time.cell_steps import layout_of
from perfsuite.features.predict.time.on_cpu import (
    calibration_without,
    costs_table,
    error_sentences,
    parts_on_cpu,
)
from perfsuite.features.predict.time.regimes import interval, of_cell
from perfsuite.features.predict.time.replayed import (
    Costs,
    costs_of,
    replay_traces,
    seconds_of,
    slowest,
    trace_step,
    write_spans,
)
from perfsuite.features.predict.time.traced import KERNELS, Replayed
from perfsuite.features.predict.trace_summary import missing_bytes
from perfsuite.features.predict.untraceable import why_no_operators
from perfsuite.features.studies._length_options import add_length, length_of
from perfsuite.features.studies._study_rows import Length, rounds_of, time_to_train
from perfsuite.features.studies._workbench import KeptStudy
from perfsuite.rank.recipe import recipe_of
from perfsuite.records import codec
from perfsuite.records.measurement import Measurement
from perfsuite.run.runner import Settings
from perfsuite.settings import keys
from perfsuite.show.text.tables import bare_table, print_table
from perfsuite.system.paths import check_output
from perfsuite.system.units import show_bytes, show_duration, show_durations, show_seconds

HELP = "How long a training takes, from a measured cell or from a trace."
QUESTION = "predict"
EXAMPLES = (
    "perfsuite time gpt2_tiny-ddp-cpu_x2 --tokens 1B",
    "perfsuite time llama_8b-fsdp2+bf16-h100_x8 --tokens 1B --predict",
)
PAGE = "studies"
STARTS_PROCESSES = True
STUDIES = Path("perf-studies")  # the folder of the cells that studies have measured


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("cell", metavar="CELL", help="The cell's id, e.g. t5_tiny-zero3+bf16-cpu_x2.")
    add_length(parser)
    text = "Predict the step from a trace of the cell's code: for an absent device, or for this CPU."
    parser.add_argument("--predict", action="store_true", help=text)
    text = "With --predict: write the step as a Chrome trace, for https://ui.perfetto.dev."
    parser.add_argument("--trace", type=Path, metavar="FILE.json", help=text)
    parser.add_argument("--unpadded", action="store_true", help="With --predict: batches without padding.")
    add_shared(parser, keys.BASELINES, keys.KERNELS, keys.CATALOG)


def run(arguments: argparse.Namespace) -> int:
    """Print the time, its uncertainty and its source."""
    catalog = catalog_of(arguments)
    length = length_of(arguments)
    if arguments.predict:
        asked = parse_cell(arguments.cell, catalog)
        predict = _predict_on_cpu if asked.hardware.device is None else _predict
        return predict(asked, length, arguments, catalog)
    if arguments.trace or arguments.unpadded:
        raise UsageError("--trace and --unpadded are of a predicted step: add --predict.")
    cell = parse_cell(arguments.cell, catalog).id
    store = store_of(arguments)
    found = list(_measured(cell, store))
    if not found:
        raise UsageError(
            f"{cell} is measured neither in {STUDIES}/ nor in {store.root}/: run a study that has "
            "it, or pytest --perf --perf-update=new."
        )
    date, path, measurements = max(found, key=lambda item: item[0])
    measurement = merge(measurements, catalog.all("metric").values())
    rounds = rounds_of(measurements)
    training = time_to_train(measurement, rounds, length) if measurement.outcome == "fits" else None
    if training is None:
        raise UsageError(f"{cell} has no step time in {path}: its outcome is {measurement.outcome}.")
    median = show_seconds(measurement.readings["step_time_seconds"].value)
    count = f"{sum(map(len, rounds))} measured in {len(rounds)} round" + "s" * (len(rounds) > 1)
    machine = f"{measurement.machine.device}, {measurement.machine.cores} cores"
    print(f"{cell}: {show_duration(training.seconds, training.uncertainty_seconds)} for {length}")
    print(f"  {training.steps:,} steps; {count}, median {median}; ± is 95 % of their spread")
    print(f"  measured {date} on {machine}: {os.path.relpath(path)}")
    return 0


def _predict(cell: Cell, length: Length, arguments: argparse.Namespace, catalog: Catalog) -> int:
    """Print the step of the cell's trace, where it goes, and the training's time. Exit code 1 if it does not fit."""
    check_output("--trace", arguments.trace, ".json")
    costs = costs_of(cell)
    traces = trace_step(cell, catalog, padded=not arguments.unpadded)
    accumulation = recipe_of(cell.strategy).accumulation
    device = replay_traces(traces, costs, accumulation, launched=False)
    found = replay_traces(traces, costs, accumulation)
    total, without = seconds_of(found), seconds_of(device)
    steps = _steps(cell, length)
    kind = of_cell(cell, (total - without) / total)
    ends = interval(total, kind)
    source = "a trace of the first rank" if len(traces) == 1 else f"traces of {len(traces)} stages"
    missing = missing_bytes(cell, traces.values())
    unpadded = " --unpadded" * arguments.unpadded
    trained = show_durations(total * steps, *(steps * end for end in ends))
    print(f"{cell.id}: predicted {trained} for {length}")
    if missing:
        print(f"  does not fit: ≈ {show_bytes(missing)} missing, see perfsuite memory {cell.id}{unpadded}")
    step = f"{show_seconds(total)} ({'–'.join(map(show_seconds, ends))})"
    print(f"  {steps:,} steps of {step}, from {source}; nothing was measured")
    print(f"  {batches(cell.workload, not arguments.unpadded)}; interval of 90 %: {kind}")
    print()
    fullest = slowest(device)
    print_table(_parts(fullest, len(traces), total, without))
    print()
    print("The interval is that of the closed form in `perfsuite fit`. No measurement has judged a replay.")
    if slowed := _contention(fullest, costs):
        print(
            f"Messages slow kernels that run at the same time: about {show_seconds(slowed)} in `fit`, none in a replay."
        )
    if arguments.trace:
        write_spans(arguments.trace, f"{cell.id}, predicted", traces, found)
        print(f"{arguments.trace} is written: open it in https://ui.perfetto.dev.")
    return 1 if missing else 0


def _steps(cell: Cell, length: Length) -> int:
    """The optimizer steps of a training of that length."""
    workload = cell.workload
    samples = workload.micro_batch * recipe_of(cell.strategy).accumulation * layout_of(cell).data_ranks
    tokens = samples * (workload.sequence_length + (workload.target_length or 0))
    return length.steps or math.ceil((length.tokens or 0) / tokens)


def _predict_on_cpu(cell: Cell, length: Length, arguments: argparse.Namespace, catalog: Catalog) -> int:
    """Print the step that the cell's counts make on this CPU, where it goes, and the training's time."""
    if arguments.trace or arguments.unpadded:
        raise UsageError("--trace and --unpadded are of a predicted step on a GPU.")
    if reason := why_no_operators(cell):
        raise Refused(f"{cell.id} has no predicted step: {reason}")
    settings = Settings(kernels=value_of(arguments, keys.KERNELS))
    calibration = calibration_without(cell, store_of(arguments).root, settings, catalog)
    parts = parts_on_cpu(cell, calibration, catalog)
    total, steps = sum(parts.values()), _steps(cell, length)
    ends = [total * factor for factor in calibration.interval]
    print(f"{cell.id}: predicted {show_durations(total * steps, *(end * steps for end in ends))} for {length}")
    print(f"  {steps:,} steps of {show_seconds(total)} ({'–'.join(map(show_seconds, ends))}), by what it counts")
    for sentence in error_sentences(calibration):
        print(f"  {sentence}")
    print()
    table = bare_table("part", "seconds")
    for name, seconds in parts.items():
        table.add_row(name, show_seconds(seconds))
    print_table(table)
    print()
    print_table(costs_table(calibration))
    return 0


def _parts(fullest: Replayed, stages: int, total: float, without: float) -> Table:
    """Where the seconds of a step go: ``total``, and ``without`` the host's launches."""
    table = bare_table("part" if stages == 1 else "part of the fullest stage", "seconds", "exposed")
    exposed = fullest.exposed()
    for kind, seconds in sorted(fullest.busy().items(), key=lambda item: -item[1]):
        table.add_row(NAMES.get(kind, kind), show_seconds(seconds), show_seconds(exposed.get(kind, seconds)))
    if stages > 1:
        table.add_row("waiting for other stages", "", show_seconds(without - fullest.running))
    table.add_row("waiting for the host", "", show_seconds(total - without))
    return table


def _contention(fullest: Replayed, costs: Costs) -> float:
    """The seconds by which hidden messages would slow the step, as in the steps that the closed form was fitted to."""
    messages = sum(seconds for kind, seconds in fullest.busy().items() if kind not in KERNELS)
    return (1 - costs.constants.overlap) * (messages - sum(fullest.exposed().values()))


NAMES = {"matmul": "matmuls", "cudnn": "attention", "kernel": "other kernels", "copy": "copies to and from the host"}


def _measured(cell: str, store: Store) -> Iterable[tuple[str, Path, list[Measurement]]]:
    """Date, file and measurements of every file that has the cell."""
    for path in sorted(STUDIES.glob(f"*/cells/{cell}.json")):
        kept = codec.read(path, KeptStudy)
        yield kept.date, path, kept.measurements
    baseline = store.load(cell)
    if baseline is not None:
        yield baseline.date, store.path(cell), [baseline.measurement]
