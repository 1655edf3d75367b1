"""``perfsuite emulate``: runs any command on emulated GPUs."""

import argparse
from pathlib import Path

from perfsuite.cli.shared_options import add_shared, catalog_of, count
from perfsuite.errors import UsageError
from perfsuite.features.emulation.devices import parse_gpus
from perfsuite.features.emulation.running import COMPUTED, Emulation
from perfsuite.features.emulation.running import run as run_emulated
from perfsuite.settings.keys import CATALOG
from perfsuite.system.paths import check_output
from perfsuite.system.units import parse_bytes

HELP = "Run a command on emulated GPUs: torch's CUDA build, without a GPU."
QUESTION = "predict"
EXAMPLES = (
    "perfsuite emulate --gpus h100:2 -- torchrun --nproc-per-node 2 train.py",
    "perfsuite emulate -- pytest --perf --perf-hardware=gpus",
)
PAGE = "emulation"
STARTS_PROCESSES = True


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("--gpus", default="h100:1", metavar="NAME:N", help="e.g. a100_80g:8 (h100:1).")
    parser.add_argument("--memory", metavar="SIZE", help="What CUDA sees of each device's memory, e.g. 40GiB (all).")
    text = f"Tensors up to so many elements are really computed; 0: none ({COMPUTED})."
    parser.add_argument("--computed", type=count, default=COMPUTED, metavar="N", help=text)
    text = "Events are not done at once, at random with this seed: record_stream then keeps blocks."
    parser.add_argument("--late-events", type=int, metavar="SEED", help=text)
    text = "Each process counts its launches, copies and messages into FILE.<process>.json."
    parser.add_argument("--counts", type=Path, metavar="FILE.json", help=text)
    add_shared(parser, CATALOG)
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="The command, after --.")


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not command:
        raise UsageError("Give a command after --, for example: perfsuite emulate --gpus h100:2 -- pytest --perf.")
    if arguments.computed < 0:
        raise UsageError(f"--computed must be 0 or more, not {arguments.computed}.")
    if arguments.late_events is not None and arguments.late_events < 0:
        raise UsageError(f"--late-events must be a seed of 0 or more, not {arguments.late_events}.")
    memory = parse_bytes(arguments.memory) if arguments.memory else None
    gpus = parse_gpus(arguments.gpus, memory, catalog_of(arguments))
    check_output("--counts", arguments.counts, ".json")
    return run_emulated(Emulation(gpus, arguments.computed, arguments.late_events, arguments.counts), command)
