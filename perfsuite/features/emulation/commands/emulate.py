"""``perfsuite emulate``: runs any command on emulated GPUs."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from perfsuite.cli.shared_options import add_shared, catalog_of
from perfsuite.errors import UsageError
from perfsuite.features.emulation.devices import Gpus, parse_gpus
from perfsuite.features.emulation.running import COMPUTED, Emulation
from perfsuite.features.emulation.running import run as run_emulated
from perfsuite.settings.keys import CATALOG
from perfsuite.settings.setting import assignments
from perfsuite.system.paths import check_output
from perfsuite.system.units import parse_bytes, parse_count

HELP = "Run a command on emulated GPUs: torch's CUDA build, without a GPU."
QUESTION = "predict"
EXAMPLES = (
    "perfsuite emulate --gpus h100:2 -- torchrun --nproc-per-node 2 train.py",
    "perfsuite emulate -- pytest --perf --perf-hardware=gpus",
)
PAGE = "emulation"
STARTS_PROCESSES = True
SETTINGS = {
    "computed": f"N, the elements of the largest tensor that is really computed, 0 for none ({COMPUTED})",
    "late_events": "SEED, so that events are not done at once: record_stream then keeps blocks",
    "counts": "FILE.json, where each process counts its launches, copies and messages: FILE.<process>.json",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("--gpus", default="h100:1", metavar="NAME:N", help="e.g. a100_80g:8 (h100:1).")
    parser.add_argument("--capacity", metavar="SIZE", help="What CUDA sees of each device's memory, e.g. 40GiB (all).")
    named = "; ".join(f"{name}={what}" for name, what in SETTINGS.items())
    text = f"What the emulation does otherwise: {named}."
    parser.add_argument("--set", nargs="+", action="extend", default=[], metavar="NAME=VALUE", help=text)
    add_shared(parser, CATALOG)
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="The command, after --.")


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not command:
        raise UsageError("Give a command after --, for example: perfsuite emulate --gpus h100:2 -- pytest --perf.")
    memory = parse_bytes(arguments.capacity) if arguments.capacity else None
    gpus = parse_gpus(arguments.gpus, memory, catalog_of(arguments))
    return run_emulated(emulation_of(gpus, arguments.set), command)


def emulation_of(gpus: Gpus, words: Sequence[str]) -> Emulation:
    """The emulation with the settings of ``--set``. Raises UsageError for another name or a bad value."""
    found = assignments("--set", words, "computed=0")
    if unknown := [name for name in found if name not in SETTINGS]:
        raise UsageError(f"--set has no {unknown[0]!r}: write NAME=VALUE, of {', '.join(SETTINGS)}.")
    counts = Path(found["counts"]) if "counts" in found else None
    check_output("--set counts", counts, ".json")
    late = parse_count(found["late_events"]) if "late_events" in found else None
    return Emulation(gpus, parse_count(found.get("computed", str(COMPUTED))), late, counts)
