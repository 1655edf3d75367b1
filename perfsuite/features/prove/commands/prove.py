"""``perfsuite prove -- COMMAND``: whether a training script is right, by a relation that two runs of it must satisfy.

Exit codes in addition to the usual ones: 1 if it is wrong, or if the script fails; 3 if that cannot be decided.
"""

import argparse
from contextlib import closing
from pathlib import Path

from perfsuite.catalog.cell_id import HardwareName
from perfsuite.catalog.registry import Catalog
from perfsuite.cli.shared_options import add_shared, value_of
from perfsuite.errors import UsageError
from perfsuite.features.prove.accumulation import STEPS, prove_accumulation
from perfsuite.features.prove.accumulation_text import render_accumulation
from perfsuite.launch.hardware_here import largest_here, local_hardware
from perfsuite.launch.launcher import CellFailed
from perfsuite.records import codec
from perfsuite.records.gradients import Agreement
from perfsuite.run.runner import Settings
from perfsuite.settings.keys import KERNELS, PATIENCE, TIMEOUT
from perfsuite.show.text.live import LiveLine
from perfsuite.show.text.verdict_text import last_lines
from perfsuite.system.paths import check_output

HELP = "Run a training script twice, and compare the gradients of one global batch in one micro-batch and in several."
QUESTION = "prove"
EXAMPLES = ("perfsuite prove -- python train.py --batch-size 4 --accumulate 2",)
PAGE = "scripts"
STARTS_PROCESSES = True
UNDECIDED = 3


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help=_COMMAND)
    parser.add_argument(
        "--hardware", metavar="H", help="The device and the ranks; by default one rank of what is here."
    )
    parser.add_argument("--names", metavar="BATCH,ACCUMULATE", help=_NAMES)
    parser.add_argument("--json", type=Path, metavar="FILE", help="Write the result as JSON.")
    add_shared(parser, KERNELS, TIMEOUT)


_COMMAND = "What trains, as in a shell: python train.py --batch-size 4 --accumulate 2."
_NAMES = "The command's options for the micro-batch and the accumulation, if they have unusual names: =--rows,--parts."


def run(arguments: argparse.Namespace) -> int:
    """Compare both runs, and print whether they agree."""
    words = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    names = arguments.names.split(",") if arguments.names else []
    if len(names) not in (0, 2) or not all(names):
        raise UsageError(f"--names={arguments.names}: write the names of two options, as --names=--rows,--parts.")
    check_output("--json", arguments.json)
    timeout = value_of(arguments, TIMEOUT)
    settings = Settings(kernels=value_of(arguments, KERNELS), start_timeout=PATIENCE * timeout, step_timeout=timeout)
    hardware = arguments.hardware or str(HardwareName(largest_here(local_hardware(Catalog())).kind, 1))
    try:
        with closing(LiveLine(lambda _: STEPS)) as live:
            proof = prove_accumulation(words, names, hardware, settings, live.show)
    except CellFailed as error:
        print("\n".join([error.failure.message, *last_lines(error.failure)]))
        return 1
    if arguments.json:
        codec.write(arguments.json, proof)
    print(render_accumulation(proof))
    return {Agreement.AGREE: 0, Agreement.DIFFER: 1, Agreement.OPEN: UNDECIDED}[proof.agreement]
