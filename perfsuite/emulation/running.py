"""Runs a command over emulated GPUs: its environment variables, its shared files and its exit code."""

import contextlib
import ctypes.util
import glob
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfsuite.emulation.build import CORE, REDIRECT, stand_ins
from perfsuite.emulation.devices import Gpus
from perfsuite.emulation.installed import installed_torch
from perfsuite.errors import UsageError

MEMORY = Path("/dev/shm")  # files there are memory
COMPUTED = 4096  # elements of a tensor that is really computed


@dataclass(frozen=True)
class Emulation:
    """How a command sees its devices. ``late`` is the seed of events that are not done at once; None: all are.
    ``counts`` is where each process leaves its counts. ``computed`` is the size in elements up to which tensors are
    really computed.
    """

    gpus: Gpus
    computed: int = COMPUTED
    late: int | None = None
    counts: Path | None = None

    def settings(self, shared: Path) -> str:
        """The text of PERFSUITE_EMULATED, which the stand-ins read."""
        values: dict[str, object] = {**self.gpus.settings(), "compute": self.computed, "shared": shared}
        if self.late is not None:
            values["late"] = self.late
        if self.counts is not None:
            values["counts"] = self.counts.absolute().with_suffix("")
        return ";".join(f"{name}={value}" for name, value in values.items())


def variables(emulation: Emulation, libraries: Path, shared: Path, others: Mapping[str, str]) -> dict[str, str]:
    """The command's environment variables."""
    audit = [str(libraries / REDIRECT), *filter(None, [others.get("LD_AUDIT")])]
    made = {
        **others,
        "PERFSUITE_EMULATED": emulation.settings(shared),
        "PERFSUITE_EMULATED_LIBRARIES": str(libraries),
        "LD_AUDIT": ":".join(audit),
        "TRITON_LIBCUDA_PATH": str(libraries),  # Triton links its launcher to the driver there
    }
    if emulation.counts is not None:  # its _exit, by which forked processes end, writes the counts
        made["LD_PRELOAD"] = " ".join([str(libraries / CORE), *filter(None, [others.get("LD_PRELOAD")])])
    return made


def refuse_real_gpus() -> None:
    """Raise UsageError if this machine has a GPU or its driver: real and emulated numbers must not be confused."""
    found = sorted(glob.glob("/dev/nvidia[0-9]*")) or [ctypes.util.find_library("cuda") or ""]
    if found[0]:
        raise UsageError(
            f"This machine has NVIDIA's driver ({found[0]}): run the command on its GPUs, without emulation."
        )


def run(emulation: Emulation, command: Sequence[str]) -> int:
    """Run the command to its end and return its exit code, 128 and the signal's number if a signal ended it.

    Raises UsageError if the stand-ins cannot be built here, or the command does not exist.
    """
    refuse_real_gpus()
    if os.environ.get("PERFSUITE_EMULATED"):
        raise UsageError("This command already runs on emulated GPUs: start it once.")
    libraries = stand_ins(installed_torch())
    with _shared_folder() as shared:
        try:
            process = subprocess.Popen(command, env=variables(emulation, libraries, shared, os.environ))
        except OSError as error:
            raise UsageError(f"{command[0]} cannot run: {error.strerror}.") from error
        with _left_to(process):
            status = process.wait()
    return status if status >= 0 else 128 - status


@contextlib.contextmanager
def _shared_folder() -> Iterator[Path]:
    """A folder for messages between the command's processes."""
    root = MEMORY if os.access(MEMORY, os.W_OK) else Path(tempfile.gettempdir())
    folder = Path(tempfile.mkdtemp(dir=root, prefix="perfsuite-emulated-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _left_to(process: "subprocess.Popen[bytes]") -> Iterator[None]:
    """Meanwhile a Ctrl-C, which the terminal sends to all, is the command's alone; a SIGTERM is passed to it."""
    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN),
        signal.SIGTERM: signal.signal(signal.SIGTERM, lambda number, frame: process.send_signal(number)),
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
