"""The parent's end of a rank server, for servers of this machine. Those of other nodes: ``launch/node.py``."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec

from perfsuite.catalog.cpu_kernels import VARIABLES, pinned
from perfsuite.catalog.definitions import Model
from perfsuite.environments.environments import Environment
from perfsuite.launch.script_copy import as_the_user_says
from perfsuite.rank.flags import OWN
from perfsuite.records.job import Start
from perfsuite.system.cgroup import oom_kills, why_killed
from perfsuite.system.paths import code_folders
from perfsuite.system.units import printable
from perfsuite.system.waits import wait_readable
from perfsuite.system.workspaces import Workspace

POLL_SECONDS = 0.02
SERVER_END_SECONDS = 1.0  # for a server to end before it gets a signal, and for a killed one to be gone
END_SECONDS = 10.0  # for killed ranks to free their memory
NOT_READY = "it was not ready"
STACK_SECONDS = 0.5  # for a hanging rank to write its stack
TAIL_LINES = 12
TAIL_BYTES = 1 << 16  # a script may print much
# torch's flight recorder keeps the last 2,000 collectives, 650 bytes each. Until then it grows like a leak.
NO_RECORDER = {"TORCH_FR_BUFFER_SIZE": "0"}


@dataclass(frozen=True)
class ServerKind:
    """What a server is started with. ``visible`` are the accelerators that its ranks see, as CUDA_VISIBLE_DEVICES;
    empty for a CPU, and for all that the node gives. ``script`` is a cell's, if a script makes its ranks.
    """

    device: str  # "cpu" or "cuda"
    visible: str
    environment: Environment
    kernels: str
    script: Model | None = None


class RankServer(Protocol):
    """What the launcher needs of a server: it starts the ranks of one node and says when they end.

    ``node`` is the node's name, empty for this machine. ``workspace`` is a folder of the parent for its cells' folders.
    ``starts_command`` says that its last lines are those of a script's command.
    """

    node: str
    workspace: Path
    starts_command: bool

    def alive(self) -> bool:
        """Whether it can still start ranks."""

    def fileno(self) -> int:
        """For wait_readable(): something can be received."""

    def start(self, folder: Path, ranks: list[int]) -> None:
        """Ask for these ranks of the job in the folder. A dead server is reported by ``receive``."""

    def receive(self, seconds: float) -> list[dict[str, Any]]:
        """All messages that have arrived; waits at most so long for the first."""

    def mirror(self, folder: Path) -> None:
        """Make the cell's folder of this machine and that of the node alike: called often while ranks run."""

    def ask_for_stacks(self, pids: Iterable[int]) -> None:
        """Let ranks write their Python stacks into their logs."""

    def why_not_ready(self) -> str:
        """What to say if no rank was started in time: a sentence without its end."""

    def tail(self) -> str:
        """The server's last lines."""

    def end(self, pids: Sequence[int]) -> None:
        """End the ranks that still run, with all processes that they started, and wait until they are gone."""

    def close(self) -> None:
        """End it; nothing of it stays."""


class LocalServer:
    """A rank server of this machine. ``alive()`` is False once it has died. ``code`` is what its Python runs."""

    node = ""
    starts_command = False
    code = ("-m", "perfsuite.launch.server")

    def __init__(self, kind: ServerKind) -> None:
        device, visible, environment = kind.device, kind.visible, kind.environment
        self._held = Workspace("server")
        self.workspace = self._held.folder
        self._connection, theirs = socket.socketpair()
        self._killed_before = oom_kills()
        ours = {
            "DS_ACCELERATOR": device,
            "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # torch.cuda.is_available() then asks NVML and does not touch CUDA
            **code_folders(self.workspace),
            "TOKENIZERS_PARALLELISM": "false",
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",  # like torchrun
            "TORCHINDUCTOR_COMPILE_THREADS": "1",  # a rank compiles by itself: a pool of workers would outlive it
            "PYTHONWARNINGS": "ignore::FutureWarning",  # the last lines of a rank that failed are for its error
            "PYTHONHASHSEED": "0",  # both sides of a pair have the same, so it makes neither slower
            "PYTHONSAFEPATH": "1",  # a torch or deepspeed folder here is not the installed one
            **NO_RECORDER,
        }
        variables = environment.variables()
        if device == "cpu":
            variables = pinned(variables, kind.kernels)
            ours |= {"GLOO_SOCKET_IFNAME": "lo", "CUDA_VISIBLE_DEVICES": ""}
        elif visible:
            ours |= {"CUDA_VISIBLE_DEVICES": visible, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}  # nvidia-smi's numbering
        with (self.workspace / "server.log").open("wb") as log:
            self._process = subprocess.Popen(
                [environment.python, *self.code, device, str(self.workspace), str(self._held.lock)],
                cwd=environment.folder or None,
                stdin=theirs.fileno(),
                stdout=log,
                stderr=log,
                env={**variables, **ours, OWN: " ".join([*ours, *VARIABLES])},
                pass_fds=[self._held.lock],  # the workspace is not abandoned before its last rank has ended
                start_new_session=True,  # Ctrl-C reaches only the parent, which then ends everything in order
            )
        theirs.close()
        self._pending = b""
        self._ended: set[int] = set()
        self._closed = False

    def alive(self) -> bool:
        return not self._closed and self._process.poll() is None

    def start(self, folder: Path, ranks: list[int]) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # receive() reports the dead server
            self._connection.sendall(msgspec.json.encode(Start(folder=str(folder), ranks=ranks)) + b"\n")

    def receive(self, seconds: float) -> list[dict[str, Any]]:
        """All messages that have arrived; waits at most so long for the first."""
        if not wait_readable([self._connection], seconds):
            return []
        try:
            data = self._connection.recv(65536)
        except ConnectionResetError:
            data = b""
        if not data:
            return [{"error": f"it died{self._why_dead()}"}]
        *lines, self._pending = (self._pending + data).split(b"\n")
        messages = [json.loads(line) for line in lines]
        self._ended |= {message["ended"] for message in messages if "ended" in message}
        return messages

    def _why_dead(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            if self._process.wait(timeout=SERVER_END_SECONDS) == -signal.SIGKILL:
                return f" by SIGKILL{why_killed(self._killed_before, oom_kills())}"
        return ""

    def fileno(self) -> int:
        """For wait_readable(): something can be received."""
        return self._connection.fileno()

    def mirror(self, folder: Path) -> None:
        """The cell's folder is this machine's: its ranks write into it."""

    def ask_for_stacks(self, pids: Iterable[int]) -> None:
        """Let ranks write their Python stacks into their logs."""
        ask_for_stacks(pids)

    def why_not_ready(self) -> str:
        return NOT_READY

    def tail(self) -> str:
        """The server's last lines."""
        return last_lines(self.workspace / "server.log")

    def end(self, pids: Sequence[int]) -> None:
        """End the ranks that still run, with all processes that they started, and wait until they are gone."""
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
        deadline = time.monotonic() + END_SECONDS
        while not self._ended.issuperset(pids) and self.alive() and time.monotonic() < deadline:
            self.receive(POLL_SECONDS)
        self._ended -= set(pids)

    def close(self) -> None:
        """Ask the server to end by closing its connection. If it does not react, end it by a signal, which also ends an
        import or a build; the server removes the workspace.
        """
        if self._closed:
            return
        self._closed = True
        self._connection.close()
        for end in (self._process.terminate, self._process.kill):
            try:
                self._process.wait(timeout=SERVER_END_SECONDS)
            except subprocess.TimeoutExpired:
                end()
        self._process.wait()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)  # the compilers of a build
        self._held.close()


def ask_for_stacks(pids: Iterable[int]) -> None:
    """Let ranks of this machine write their Python stacks into their logs."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGUSR1)


def last_lines(log: Path) -> str:
    """The end of a log, to be shown; empty without one."""
    if not log.exists():
        return ""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - TAIL_BYTES))
        said = as_the_user_says(printable(file.read().decode(errors="replace")), log.parent)
    return "\n".join(said.splitlines()[-TAIL_LINES:])
