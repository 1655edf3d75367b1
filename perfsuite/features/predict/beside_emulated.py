"""``--emulated``: a command that also runs its cells, on emulated GPUs of their hardware."""

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import NoReturn

from perfsuite.catalog.cell import Cell, Hardware
from perfsuite.catalog.registry import Catalog
from perfsuite.cli.shared_options import given
from perfsuite.errors import Refused, UsageError
from perfsuite.features.predict.memory_table import beside
from perfsuite.features.predict.prediction import Prediction
from perfsuite.launch.hardware_here import require_here
from perfsuite.records import codec
from perfsuite.records.measurement import Measurement
from perfsuite.run.runner import Runner, Settings
from perfsuite.show.text.tables import print_table
from perfsuite.system.machine import EMULATED, gpus
from perfsuite.system.units import show_bytes

CLI = (sys.executable, "-m", "perfsuite.cli.main")


def add_emulated(parser: argparse.ArgumentParser, text: str) -> None:
    """``--emulated``."""
    parser.add_argument("--emulated", action="store_true", help=text)


def is_here() -> bool:
    """Whether this process sees emulated GPUs."""
    return any(gpu.name.startswith(EMULATED) for gpu in gpus())


def again(hardware: Hardware, arguments: argparse.Namespace, *words: str, script: Sequence[str] = ()) -> NoReturn:
    """Become the command of these words on emulated devices of the hardware; ``script`` is what it runs.

    Raises UsageError for hardware that cannot be emulated.
    """
    if hardware.device is None:
        raise UsageError("--emulated needs a GPU, and a CPU is no such device: add for example --hardware h100_x2.")
    if hardware.nodes > 1:
        raise UsageError(f"--emulated has one node, and {hardware.name} has {hardware.nodes}.")
    devices = f"{hardware.device.name}:{hardware.ranks}"
    folders, fresh = given(arguments, "--catalog"), ["--fresh"] if arguments.fresh else []
    behind = ["--", *script] if script else []
    command = [*CLI, "emulate", "--gpus", devices, *folders, "--"]
    command += [*CLI, *words, *folders, *fresh, "--emulated", *behind]
    os.execv(command[0], command)


def measure(cells: Sequence[Cell], catalog: Catalog) -> list[Measurement]:
    """One step of each cell on the emulated GPUs of this machine. Raises UsageError if a cell needs others."""
    require_here((cell.hardware for cell in cells), catalog)
    with closing(Runner(catalog, Settings(steps=1, warmup=0))) as runner:
        return [runner.measure(cell) for cell in cells]


def sentence(measured: Measurement) -> str:
    """How an emulated cell ended."""
    if measured.outcome == "fits":
        free = int(measured.readings["free_memory_bytes"].value)
        return f"emulated, it fits: {show_bytes(free)} are left"
    message = measured.failure.message.splitlines()[0] if measured.failure else ""
    return f"emulated, it {'runs out of memory' if measured.outcome == 'oom' else 'fails'}: {message}"


def show(cell: Cell, prediction: Prediction, measured: Measurement, json: Path | None = None) -> int:
    """Print the emulated memory next to the predicted one. Exit code 1 if the emulated cell runs out of memory.
    ``json`` gets the emulated one.

    Raises Refused if it fails for another reason.
    """
    if json:
        codec.write(json, measured)
    if measured.outcome not in ("fits", "oom"):
        raise Refused(f"{cell.id}: {sentence(measured)}")
    print(f"{cell.id}: on emulated GPUs, no real one" + (", next to the prediction" if prediction.ranks else ""))
    if measured.outcome == "fits":
        print()
        print_table(beside(prediction, measured))
    print()
    print(f"E{sentence(measured).removeprefix('e')}.")
    if prediction.outcome == "unsupported":
        print(f"It is not predicted: {prediction.reason}")
    return int(measured.outcome != "fits")
