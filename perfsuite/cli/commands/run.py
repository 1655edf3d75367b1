"""``perfsuite run -- COMMAND``: measures a training script as it is, started by its own launcher.

Exit code 1 if it could not be measured, or if a long run shows that something grows with every step.
"""

import argparse
import shlex
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from perfsuite.catalog.cell import make_cell
from perfsuite.catalog.cell_id import HardwareName
from perfsuite.catalog.definitions import Metric
from perfsuite.catalog.registry import Catalog
from perfsuite.catalog.scripts import ENGINE, name_of, script
from perfsuite.cli.shared_options import add_html, add_own, add_shared, html_of, settings_of, write_html
from perfsuite.compare.merge_launches import merge
from perfsuite.compare.rules import why_wrong
from perfsuite.launch.hardware_here import largest_here, local_hardware, require_here
from perfsuite.launch.programs import check_command
from perfsuite.records import codec
from perfsuite.records.measurement import Measurement
from perfsuite.run.runner import Runner
from perfsuite.settings.keys import KERNELS, LAUNCHES, TIMEOUT
from perfsuite.settings.options import LONG, STEPS
from perfsuite.show.html.measured import measured_page
from perfsuite.show.text.first_screen import first_screen
from perfsuite.show.text.live import LiveLine
from perfsuite.show.text.measured import render_measured
from perfsuite.show.text.verdict_text import last_lines
from perfsuite.system.paths import check_output

HELP = "Measure a training script as it is, started by its own launcher."
QUESTION = "guard"
EXAMPLES = ("perfsuite run -- python train.py", "perfsuite run --long 200 -- torchrun --nproc-per-node 2 train.py")
PAGE = "scripts"
STARTS_PROCESSES = True


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help=_COMMAND)
    parser.add_argument("--hardware", metavar="H", help="The device and the ranks, by default as the script says.")
    add_own(parser, LAUNCHES, 2)  # one alone does not say which numbers repeat
    parser.add_argument("--json", type=Path, metavar="FILE", help="Write the measurement as JSON.")
    add_shared(parser, STEPS, KERNELS, TIMEOUT, LONG)
    parser.add_argument("--all", action="store_true", help="Print every number, not only what matters first.")
    add_html(parser)


_COMMAND = "What trains, as in a shell: torchrun --nproc-per-node 2 train.py --lr 1e-4."


def run(arguments: argparse.Namespace) -> int:
    """Measure the command, and print what is known of it."""
    words = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    model = script(name_of(words), shlex.join(words), Path.cwd())
    check_command(words, Path.cwd())
    settings, page = settings_of(arguments), html_of(arguments)
    check_output("--json", arguments.json)
    catalog = Catalog(extra_models=(model,))
    here = largest_here(local_hardware(catalog))
    cell = make_cell(model.name, ENGINE, arguments.hardware or str(here), catalog)
    require_here([cell.hardware], catalog)
    metrics = catalog.metrics(ENGINE)
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
        print(first_screen(measurement))
        if arguments.all:
            print(render_measured(measurement, metrics))
        print(_next(measurement, words, arguments.all))
    write_html(page, measured_page(measurement, metrics))
    return 1 if measurement.failure or _grows(measurement, metrics) else 0


def _grows(measurement: Measurement, metrics: Sequence[Metric]) -> bool:
    """Whether a number is not 0 that must be, such as what grows with every step of a long run."""
    known = [metric for metric in metrics if metric.hold == "zero" and metric.name in measurement.readings]
    return any(why_wrong(one, measurement.readings[one.name], ENGINE) for one in known)


def _next(measurement: Measurement, words: Sequence[str], is_all: bool) -> str:
    """What to do next. A baseline is of a real device."""
    more = "" if is_all else "All numbers: add --all before --. "
    return more + ("" if measurement.machine.emulated else f"Guard it: perfsuite init -- {shlex.join(words)}")
