"""``perfsuite run -- COMMAND``: measures a training script as it is, started by its own launcher.

Exit codes in addition to the usual ones: 1 if it could not be measured, or if the accumulation is wrong; 3 if that
cannot be decided.
"""

import argparse
import json
import shlex
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from perfsuite.catalog.cell import Cell, make_cell
from perfsuite.catalog.cell_id import CPU, HardwareName
from perfsuite.catalog.registry import Catalog
from perfsuite.catalog.scripts import ENGINE, name_of, script
from perfsuite.cli.shared_options import add_html, add_own, add_shared, html_of, settings_of, write_html
from perfsuite.compare.merge_launches import merge
from perfsuite.errors import UsageError
from perfsuite.launch.hardware_here import local_hardware
from perfsuite.launch.launcher import CellFailed
from perfsuite.records import codec
from perfsuite.records.gradients import Agreement
from perfsuite.run.accumulation import STEPS as PROOF_STEPS
from perfsuite.run.accumulation import prove_accumulation
from perfsuite.run.runner import Runner, Settings
from perfsuite.settings.keys import KERNELS, LAUNCHES, TIMEOUT, WARMUP
from perfsuite.settings.options import LONG, STEPS
from perfsuite.show.html.measured import measured_page
from perfsuite.show.text.accumulation import render_accumulation
from perfsuite.show.text.live import LiveLine
from perfsuite.show.text.measured import render_measured
from perfsuite.show.text.verdict_text import last_lines
from perfsuite.system.paths import check_output
from perfsuite.system.units import show_several

HELP = "Measure a training script as it is, started by its own launcher."
QUESTION = "guard"
STARTS_PROCESSES = True
ACCUMULATION = "accumulation"
UNDECIDED = 3


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help=_COMMAND)
    parser.add_argument("--hardware", metavar="H", help="The device and the ranks, by default as the script says.")
    add_own(parser, LAUNCHES, 2)  # one alone does not say which numbers repeat
    parser.add_argument("--json", type=Path, metavar="FILE", help="Write the measurement as JSON.")
    parser.add_argument("--prove", metavar="accumulation[:BATCH,ACCUMULATE]", help=_PROVE)
    add_shared(parser, STEPS, WARMUP, KERNELS, TIMEOUT, LONG)
    add_html(parser)


_COMMAND = "What trains, as in a shell: torchrun --nproc-per-node 2 train.py --lr 1e-4."
_PROVE = (
    "Measure nothing, but compare the gradients of one global batch in one micro-batch and in several. BATCH and "
    "ACCUMULATE name the command's options if they have unusual names."
)


def run(arguments: argparse.Namespace) -> int:
    """Measure the command, and print what is known of it."""
    words = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    model = script(name_of(words), shlex.join(words), Path.cwd())
    settings, page = settings_of(arguments), html_of(arguments)
    check_output("--json", arguments.json)
    catalog = Catalog(extra_models=(model,))
    here = largest(local_hardware(catalog))
    cell = make_cell(model.name, ENGINE, arguments.hardware or str(here), catalog)
    metrics = catalog.metrics(ENGINE)
    if arguments.prove is not None:
        hardware = arguments.hardware or str(HardwareName(here.kind, 1))
        return prove(arguments.prove, words, hardware, settings, arguments.json, page)
    with closing(Runner(catalog, settings)) as runner, closing(LiveLine(settings.all_steps_of)) as live:
        first = runner.measure(cell, live.show)
        ranks = first.failure.world_size if first.failure else None
        if ranks and not arguments.hardware:
            cell = make_cell(model.name, ENGINE, str(HardwareName(here.kind, ranks)), catalog)
            first = runner.measure(cell, live.show)
        measured = [first]
        while len(measured) < arguments.launches and first.outcome == "fits":
            measured.append(runner.measure(cell, live.show))
    measurement = merge(measured, metrics)
    if arguments.json:
        codec.write(arguments.json, measurement)
    if measurement.failure:
        is_known = arguments.hardware or ranks or measurement.failure.rank is not None  # else it is not its hardware
        said = f"{cell.id if is_known else model.name}: {measurement.failure.message}"
        print("\n".join([said, *last_lines(measurement.failure)]))
    else:
        emulated = ", on emulated GPUs, no real one" if measurement.machine.emulated else ""
        print(f"{cell.id}: measured in {show_several(len(measured), 'launch', 'launches')}{emulated}")
        print(render_measured(measurement, metrics))
        print("" if emulated else guard(cell, words))
    write_html(page, measured_page(measurement, metrics))
    return 1 if measurement.failure else 0


def prove(
    what: str, words: Sequence[str], hardware: str, settings: Settings, file: Path | None, page: Path | None
) -> int:
    """Compare one global batch in two splits."""
    name, _, options = what.partition(":")
    names = options.split(",") if options else []
    if name != ACCUMULATION or len(names) not in (0, 2) or not all(names) or page:
        raise UsageError(
            f"--prove {what}: write --prove accumulation, or --prove accumulation:--batch-size,--accumulate with the "
            "names of the command's options, and no --html."
        )
    try:
        with closing(LiveLine(lambda _: PROOF_STEPS)) as live:
            proof = prove_accumulation(words, names, hardware, settings, live.show)
    except CellFailed as error:
        print("\n".join([error.failure.message, *last_lines(error.failure)]))
        return 1
    if file:
        codec.write(file, proof)
    print(render_accumulation(proof))
    return {Agreement.AGREE: 0, Agreement.DIFFER: 1, Agreement.OPEN: UNDECIDED}[proof.agreement]


def largest(names: Sequence[str]) -> HardwareName:
    """All GPUs of the first kind: each rank must see its own before it is known how many there are."""
    here = [HardwareName.parse(name) for name in names] or [HardwareName(CPU, 1)]
    return max((one for one in here if one.kind == here[0].kind), key=lambda one: one.ranks or 0)


def guard(cell: Cell, words: Sequence[str]) -> str:
    """How the script gets a baseline."""
    return (
        "To guard it, add to pyproject.toml:\n"
        f"  [tool.perfsuite.scripts]\n  {cell.model.name} = {json.dumps(shlex.join(words))}\n"
        f'and a test with @pytest.mark.perf_cell("{cell.id}"), then run: pytest --perf --perf-update=new'
    )
