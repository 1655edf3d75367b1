"""``perfsuite calibrate``: what an operator, a message and a matmul cost on this CPU, and how well that predicts."""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from rich.table import Table

from perfsuite.catalog.cell import Cell, parse_cell
from perfsuite.catalog.registry import Catalog
from perfsuite.cli.shared_options import add_settings, add_shared, catalog_of, settings_of
from perfsuite.errors import PerfsuiteError, Refused, UsageError
from perfsuite.features.predict.calibration import Calibration
from perfsuite.features.predict.time.counted import Counted, CountedRow, calibrate, predicted_parts, row_of
from perfsuite.features.predict.traced_memory import predict
from perfsuite.features.predict.untraceable import why_no_operators
from perfsuite.records import codec
from perfsuite.records.baseline import Baseline
from perfsuite.records.measurement import Measurement
from perfsuite.run.runner import Runner
from perfsuite.settings.keys import CATALOG
from perfsuite.show.text.tables import bare_table, print_table
from perfsuite.system.machine import cores, refuse_emulated
from perfsuite.system.paths import check_output
from perfsuite.system.units import show_change, show_flops, show_ratio, show_seconds, show_several, show_time

HELP = "What an operator and a message cost on this CPU; predicts steps."
QUESTION = "predict"
EXAMPLES = ("perfsuite calibrate --predict gpt2_tiny-zero3-cpu_x2",)
PAGE = "studies"
STARTS_PROCESSES = True
FEWEST = 8  # cells: a fold of five must leave enough for five constants
SWEEP = (  # about two minutes on two cores
    "gpt2_tiny-single-cpu_x1", "llama_tiny-single-cpu_x1", "t5_tiny-single+bf16-cpu_x1", "gpt2_tiny-ddp-cpu_x2",
    "llama_tiny-ddp+bf16-cpu_x2", "gpt2_tiny-fsdp2-cpu_x2", "llama_tiny-zero1-cpu_x2", "gpt2_tiny-zero2+bf16-cpu_x2",
    "llama_tiny-zero3-cpu_x2", "t5_tiny-ddp-cpu_x2",
)  # fmt: skip
MEANING = {
    "operator": "one operator",
    "operator_beside": "… more while other ranks run",
    "message": "one message",
    "byte": "one byte of it",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    text = "Baselines' folders, or reports (--perf-report) with measured cells. Without: measures some cells now."
    parser.add_argument("measured", nargs="*", type=Path, metavar="PATH", help=text)
    text = "Predict the steps of these cells, from their traces."
    parser.add_argument("--predict", nargs="+", default=[], metavar="CELL", help=text)
    parser.add_argument("--json", type=Path, metavar="FILE", help="Write the constants to this file too.")
    add_settings(parser, steps=10, warmup=3)
    add_shared(parser, CATALOG)


def run(arguments: argparse.Namespace) -> int:
    """Print the constants, their errors and the predictions. Exit code 1 if a cell cannot be predicted."""
    catalog = catalog_of(arguments)
    check_output("--json", arguments.json, ".json")
    asked = [parse_cell(name, catalog) for name in arguments.predict]
    if wrong := [cell.id for cell in asked if cell.hardware.device is not None]:
        raise UsageError(f"{wrong[0]} is not on a CPU: `perfsuite fit` and `perfsuite plan` predict other devices.")
    for cell in asked:
        if reason := why_no_operators(cell):
            raise Refused(f"{cell.id} has no predicted step: {reason}")
    found = _here(arguments, catalog) if not arguments.measured else _kept(arguments.measured)
    rows, machine, count = _rows(list(found), catalog)
    if len(rows) < FEWEST:
        raise UsageError(
            f"A calibration needs {FEWEST} timed cells of one CPU, and {len(rows)} were found: "
            "run pytest --perf --perf-report=run.jsonl and give it run.jsonl."
        )
    calibration = calibrate([row for row in rows if row.cell.id not in arguments.predict], machine, count)
    _print(calibration)
    if asked:
        print()
        _predict(asked, {row.cell.id: row.seconds for row in rows}, calibration, catalog)
    if arguments.json:
        codec.write(arguments.json, calibration)
    return 0


def _here(arguments: argparse.Namespace, catalog: Catalog) -> Iterator[Measurement]:
    """Measure the sweep on this machine."""
    refuse_emulated("perfsuite calibrate")
    with closing(Runner(catalog, settings_of(arguments))) as runner:
        for number, name in enumerate(SWEEP, 1):
            one = runner.measure(parse_cell(name, catalog))
            text = one.failure.message if one.failure else show_seconds(one.readings["step_time_seconds"].value)
            print(f"[{number}/{len(SWEEP)}] {name}: {text}", file=sys.stderr, flush=True)
            yield one


def _kept(paths: Sequence[Path]) -> Iterator[Measurement]:
    """The measured cells of folders with baselines and of reports. Raises FileError."""
    for path in paths:
        if path.is_dir():
            for file in sorted(path.rglob("cpu_x*/*.json")):
                if "predicted" not in file.parts:
                    yield codec.read(file, Baseline).measurement
        else:
            yield from (one.measurement for one in codec.read_measured(path))


def _rows(found: Sequence[Measurement], catalog: Catalog) -> tuple[list[CountedRow], str, int]:
    """The rows of the machine that measured most cells, its name and its cores."""
    machines = Counter(one.machine.identity for one in found)
    (identity, _), *others = machines.most_common() or [("", 0)]
    if others:
        print(f"left out: {show_several(sum(count for _, count in others), 'cell')} of other machines")
    rows: list[CountedRow] = []
    for one in found:
        if one.machine.identity == identity and (cell := _cell(one.cell, catalog)):
            rows += filter(None, [row_of(cell, one)])
    machine = next((one.machine for one in found if one.machine.identity == identity), None)
    return rows, machine.device if machine else "", machine.cores if machine else cores()


def _cell(name: str, catalog: Catalog) -> Cell | None:
    """The cell of a measurement; None if the catalog no longer has it."""
    try:
        return parse_cell(name, catalog)
    except PerfsuiteError:
        return None


def _print(found: Calibration) -> None:
    """The constants, and how well they predict what they had not seen."""
    print(f"{found.machine}, {found.cores} cores: fitted on {len(found.cells)} measured cells")
    print()
    table = bare_table("what", "costs")
    for name, text in MEANING.items():
        table.add_row(text, show_time(found.seconds[name]))
    for name, rate in sorted(found.flops.items()):
        factor = found.seconds["matmul" if name == "fp32" else "matmul_half"] or 1.0
        table.add_row(f"small matmuls in {name}", f"{show_flops(rate / factor)}")
        table.add_row("… large ones", f"{show_flops(rate)} (measured)")
    print_table(table)
    print()
    low, high = found.interval
    print("Cells that the constants had not seen, in five folds:")
    print(f"  median error {show_ratio(found.median_error)}; 90 % took {low:.2f} to {high:.2f} times the prediction")
    print(f"  {found.pairs_in_order} of {found.pairs} pairs of engines that clearly differ are in order")


def _predict(cells: Sequence[Cell], measured: dict[str, float], found: Calibration, catalog: Catalog) -> None:
    """The cells that were asked for, and what was measured; that was not used for the fit."""
    table: Table = bare_table("cell", "predicted step (90 %)", "measured", "error", "operators", "messages", "matmuls")
    for cell, one in zip(cells, predict(cells, catalog, counted=True), strict=True):
        if "operators" not in one.readings:
            raise Refused(f"{cell.id} has no predicted step: {one.reason}")
        parts = predicted_parts(Counted.of(cell, one.readings), found)
        total = sum(parts.values())
        low, high = (show_seconds(total * factor) for factor in found.interval)
        there = measured.get(cell.id)
        compared = ["", ""] if there is None else [show_seconds(there), show_change(there, total)]
        shares = [show_seconds(parts[name]) for name in ("operators", "messages", "matmuls")]
        table.add_row(cell.id, f"{show_seconds(total)} ({low}–{high})", *compared, *shares)
    print_table(table)
