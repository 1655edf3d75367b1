"""Runs a command over emulated GPUs: its environment variables, its shared files and its exit code."""

import ctypes.util
import glob
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfsuite.errors import UsageError
from perfsuite.features.emulation.compile import CORE, REDIRECT, stand_ins
from perfsuite.features.emulation.devices import Gpus
from perfsuite.features.emulation.installed import installed_torch
from perfsuite.system.paths import NAME, private_folder
from perfsuite.system.processes import end_with_parent
from perfsuite.system.workspaces import Workspace

MEMORY = Path("/dev/shm")  # files there are memory
SI_KERNEL = 0x80  # a signal's origin; sigaction(2)
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
        "USE_PYTORCH_KERNEL_CACHE": "0",  # a real GPU would load what NVRTC's stand-in made
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
    if not shutil.which(command[0]):
        raise UsageError(f"{command[0]} cannot run: no executable file has this name.")
    libraries = stand_ins(installed_torch())
    held = _shared()
    with held as shared:
        no_time = "No time is real, and most numbers are not."
        print(f"perfsuite emulate: {emulation.gpus}. {no_time}", file=sys.stderr, flush=True)
        made = variables(emulation, libraries, shared, os.environ)
        try:  # SIGTERM, not SIGKILL: launchers of other ranks then end them
            process = subprocess.Popen(
                command, env=made, pass_fds=[held.lock], preexec_fn=lambda: end_with_parent(signal.SIGTERM)
            )
        except OSError as error:
            raise UsageError(f"{command[0]} cannot run: {error.strerror}.") from error
        status = _awaited(process)
        for sentence in unseen(shared):
            print(sentence, file=sys.stderr, flush=True)
    return status if status >= 0 else 128 - status


def _shared() -> Workspace:
    """A folder for messages between the command's processes, in memory if possible."""
    try:
        root = private_folder(MEMORY / f"{NAME}-{os.getuid()}", "TMPDIR") if MEMORY.is_dir() else None
    except UsageError:
        root = None
    return Workspace("emulation", root)


def _awaited(process: "subprocess.Popen[bytes]") -> int:
    """The command's exit code. Meanwhile its signals are its own: a SIGINT or SIGTERM of another process is passed on,
    and a Ctrl-C, which the kernel sends to all processes of the terminal, already reached it.
    """
    passed = {signal.SIGINT, signal.SIGTERM}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*passed, signal.SIGCHLD})
    try:
        while (status := process.poll()) is None:
            got = signal.sigtimedwait({*passed, signal.SIGCHLD}, 1)  # another thread may get the SIGCHLD
            if got and got.si_signo in passed and got.si_code != SI_KERNEL:
                process.send_signal(got.si_signo)
        return status
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def unseen(shared: Path) -> list[str]:
    """Why stand-ins ended their processes (sources/core/ending.cpp), once each, where stderr was not this process'."""
    ended = shared / "ended"
    here = os.fstat(2)
    lines = [line.split(" ", 2) for line in ended.read_text().splitlines()] if ended.is_file() else []
    return list(dict.fromkeys(said for *file, said in lines if file != [str(here.st_dev), str(here.st_ino)]))
