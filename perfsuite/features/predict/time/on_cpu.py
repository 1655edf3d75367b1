"""The step of a cell on this CPU, from what it counts and what one operator, message and matmul cost here."""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

from rich.table import Table

from perfsuite.catalog.cell import Cell, parse_cell
from perfsuite.catalog.registry import Catalog
from perfsuite.errors import PerfsuiteError, Refused, UsageError
from perfsuite.features.predict.calibration import Calibration
from perfsuite.features.predict.time.counted import Counted, CountedRow, calibrate, predicted_parts, row_of
from perfsuite.features.predict.traced_memory import predict
from perfsuite.records import codec
from perfsuite.records.baseline import Baseline
from perfsuite.records.measurement import Measurement
from perfsuite.run.runner import Runner, Settings
from perfsuite.show.text.tables import bare_table
from perfsuite.system.machine import cores, refuse_emulated
from perfsuite.system.units import show_flops, show_ratio, show_seconds, show_time

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


def parts_on_cpu(cell: Cell, calibration: Calibration, catalog: Catalog) -> dict[str, float]:
    """The seconds of the cell's step by what they are spent on. Raises Refused for a cell that counts no operators."""
    (counted,) = predict([cell], catalog, counted=True)
    if "operators" not in counted.readings:
        raise Refused(f"{cell.id} has no predicted step: {counted.reason}")
    return predicted_parts(Counted.of(cell, counted.readings), calibration)


def calibration_without(cell: Cell, baselines: Path, settings: Settings, catalog: Catalog) -> Calibration:
    """What one of each costs, by the timed cells of the baselines, or by some that are measured now where those are
    fewer than FEWEST. The cell itself is left out. Raises UsageError if too few could be measured.
    """
    rows, machine, count = rows_of(kept(baselines), catalog)
    if len(rows) < FEWEST:
        rows, machine, count = rows_of(_here(settings, catalog), catalog)
    if len(rows) < FEWEST:
        raise UsageError(f"A prediction on a CPU needs {FEWEST} timed cells of it, and {len(rows)} could be timed.")
    return calibrate([row for row in rows if row.cell.id != cell.id], machine, count)


def kept(baselines: Path) -> Iterator[Measurement]:
    """The measured cells of a folder with baselines. Raises FileError."""
    for file in sorted(baselines.rglob("cpu_x*/*.json")):
        if "predicted" not in file.parts:
            yield codec.read(file, Baseline).measurement


def _here(settings: Settings, catalog: Catalog) -> Iterator[Measurement]:
    """Measure the sweep on this machine."""
    refuse_emulated("perfsuite time")
    with closing(Runner(catalog, settings)) as runner:
        for number, name in enumerate(SWEEP, 1):
            one = runner.measure(parse_cell(name, catalog))
            text = one.failure.message if one.failure else show_seconds(one.readings["step_time_seconds"].value)
            print(f"[{number}/{len(SWEEP)}] {name}: {text}", file=sys.stderr, flush=True)
            yield one


def rows_of(measured: Iterable[Measurement], catalog: Catalog) -> tuple[list[CountedRow], str, int]:
    """The rows of the machine that measured most cells, its name and its cores."""
    found = list(measured)
    machines = Counter(one.machine.identity for one in found)
    identity = machines.most_common(1)[0][0] if machines else ""
    here = [one for one in found if one.machine.identity == identity]
    rows: list[CountedRow] = []
    for one in here:
        if cell := _cell(one.cell, catalog):
            rows += filter(None, [row_of(cell, one)])
    return (rows, here[0].machine.device, here[0].machine.cores) if here else ([], "", cores())


def _cell(name: str, catalog: Catalog) -> Cell | None:
    """The cell of a measurement; None if the catalog no longer has it."""
    try:
        return parse_cell(name, catalog)
    except PerfsuiteError:
        return None


def costs_table(found: Calibration) -> Table:
    """What one of each costs."""
    table = bare_table("what", "costs")
    for name, text in MEANING.items():
        table.add_row(text, show_time(found.seconds[name]))
    for name, rate in sorted(found.flops.items()):
        factor = found.seconds["matmul" if name == "fp32" else "matmul_half"] or 1.0
        table.add_row(f"small matmuls in {name}", f"{show_flops(rate / factor)}")
        table.add_row("… large ones", f"{show_flops(rate)} (measured)")
    return table


def error_sentences(found: Calibration) -> Sequence[str]:
    """How well the constants predict what they had not seen."""
    low, high = found.interval
    return (
        f"fitted on {len(found.cells)} measured cells of {found.machine}, {found.cores} cores",
        f"median error of unseen cells {show_ratio(found.median_error)}; 90 % took {low:.2f} to {high:.2f} times it",
    )
