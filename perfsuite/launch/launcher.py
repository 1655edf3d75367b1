"""Runs the ranks of one cell from a warm server and watches them until all are done or the first one fails."""

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfsuite.catalog.strategies import Strategy
from perfsuite.errors import FileError, PerfsuiteError
from perfsuite.kernels import PORTABLE, VARIABLES, pinned
from perfsuite.launch.blame import blame_exit, blame_hang, last_lines
from perfsuite.launch.environments import HERE, Environment
from perfsuite.paths import cache_folder
from perfsuite.rank.flags import OWN
from perfsuite.records import codec
from perfsuite.wire.failure import Failure
from perfsuite.wire.job import SCRATCH, Job
from perfsuite.wire.progress import Progress, read_progress
from perfsuite.wire.sample import RankSample

POLL_SECONDS = 0.02
GRACE_SECONDS = 0.1
COMPILE_SECONDS = 1800.0  # DeepSpeed's async_io takes eight minutes of one core
SERVER_END_SECONDS = 1.0  # for a server to end before it gets a signal
END_SECONDS = 10.0  # for killed ranks to free their memory


@dataclass(frozen=True)
class Timeouts:
    """Seconds without any progress of a rank before the cell is ended: until its first step, and from then on."""

    start: float = 300.0
    step: float = 120.0


class CellFailed(PerfsuiteError):
    """The cell has no result; ``failure`` says why."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


Watcher = Callable[[list[Progress], float], None]  # every rank's progress, seconds since the start


class Launcher:
    """Owns the rank servers of one process, all in one environment. ``close()`` leaves nothing running."""

    def __init__(
        self, timeouts: Timeouts | None = None, environment: Environment = HERE, kernels: str = PORTABLE
    ) -> None:
        self.timeouts = timeouts or Timeouts()
        self.environment = environment
        self.kernels = kernels
        self._servers: dict[tuple[str, ...], _ServerProcess] = {}

    def run(
        self, job: Job, strategy: Strategy, devices: list[int], watch: Watcher = lambda progress, seconds: None
    ) -> list[RankSample]:
        """Run a cell's ranks to their end and return their samples, rank by rank.

        ``devices`` are the accelerators that the cell has leased (empty on a CPU). Raises CellFailed.
        """
        visible = ",".join(map(str, devices))
        server = self._server(job.device, visible)
        folder = Path(tempfile.mkdtemp(dir=server.workspace, prefix="cell-"))
        pids: list[int] = []
        try:
            codec.write(folder / "job.json", job)
            request = {
                "start": str(folder),
                "ranks": job.world_size,
                "strategy": strategy.name,
                "model": job.model.model_class,
                "catalogs": job.catalogs,
                "import_path": job.import_path,
            }
            pids = self._start(server, request)
            self._wait(server, folder, pids, watch)
            return [self._result(folder, rank) for rank in range(job.world_size)]
        finally:
            server.end(pids)
            shutil.rmtree(folder / SCRATCH, ignore_errors=True)

    def close(self) -> None:
        """End all servers and their ranks."""
        for server in self._servers.values():
            server.close()
        self._servers.clear()

    def _server(self, device: str, visible: str) -> "_ServerProcess":
        key = (device, visible)
        if key in self._servers and not self._servers[key].alive():
            self._servers.pop(key).close()
        if key not in self._servers:
            self._servers[key] = _ServerProcess(device, visible, self.environment, self.kernels)
        return self._servers[key]

    def _start(self, server: "_ServerProcess", request: dict[str, Any]) -> list[int]:
        server.send(request)
        limit = self.timeouts.start
        deadline = time.monotonic() + limit
        while True:
            for message in server.receive(deadline - time.monotonic()):
                if "started" in message:
                    pids: list[int] = message["started"]
                    return pids
                if "error" in message:
                    raise CellFailed(_server_failure(message["error"], server))
                if "preparing" in message or "prepared" in message:
                    limit = max(self.timeouts.start, COMPILE_SECONDS if "preparing" in message else 0)
                    deadline = time.monotonic() + limit
            if time.monotonic() > deadline:
                failure = _server_failure(f"it was not ready within {limit:g} s", server)
                server.close()
                raise CellFailed(failure)

    def _wait(self, server: "_ServerProcess", folder: Path, pids: list[int], watch: Watcher) -> None:
        """Return when every rank has ended successfully. Raises CellFailed at the first that has not."""
        begin = time.monotonic()
        running = dict(zip(pids, range(len(pids)), strict=True))
        seen: list[Progress] = [Progress(0, 0, "start")] * len(pids)
        moved = [begin] * len(pids)
        while running:
            ended = self._ended(server, running, POLL_SECONDS)
            if any(ended.values()):
                ended |= self._ended(server, running, GRACE_SECONDS)  # the first death may be reported a moment later
                raise CellFailed(
                    blame_exit(folder, len(pids), {rank: status for rank, status in ended.items() if status})
                )
            now = time.monotonic()
            for rank in range(len(pids)):
                progress = read_progress(folder / f"rank{rank}.progress")
                if progress != seen[rank]:
                    seen[rank], moved[rank] = progress, now
            watch(seen, now - begin)
            still = list(running.values())
            for rank in still:
                limit = self.timeouts.step if seen[rank].in_step else self.timeouts.start
                if now - max(moved[rank], begin) > limit:
                    raise CellFailed(blame_hang(folder, {pids[rank]: rank for rank in still}, seen, limit))

    def _ended(self, server: "_ServerProcess", running: dict[int, int], seconds: float) -> dict[int, int]:
        """Remove the ranks that have ended from ``running``; returns their wait statuses."""
        statuses = {}
        for message in server.receive(seconds):
            if "error" in message:
                raise CellFailed(_server_failure(message["error"], server))
            rank = running.pop(message.get("ended", -1), None)
            if rank is not None:
                statuses[rank] = int(message["status"])
        return statuses

    def _result(self, folder: Path, rank: int) -> RankSample:
        try:
            return codec.read(folder / f"rank{rank}.json", RankSample)
        except FileError as error:
            message = f"Rank {rank} exited successfully but left no complete result: {error}"
            raise CellFailed(
                Failure(kind="result", rank=rank, message=message, tail=last_lines(folder, rank))
            ) from error


class _ServerProcess:
    """The parent's end of one rank server. ``alive()`` is False once it has died."""

    def __init__(self, device: str, visible: str, environment: Environment, kernels: str) -> None:
        self.workspace = Path(tempfile.mkdtemp(prefix="perfsuite-"))
        self._connection, theirs = socket.socketpair()
        ours = {
            "DS_ACCELERATOR": device,
            "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # torch.cuda.is_available() then asks NVML and does not touch CUDA
            "TORCH_EXTENSIONS_DIR": str(cache_folder() / "torch_extensions"),
            "TOKENIZERS_PARALLELISM": "false",
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",  # like torchrun
            "TORCHINDUCTOR_COMPILE_THREADS": "1",  # a rank compiles by itself: a pool of workers would outlive it
            "PYTHONWARNINGS": "ignore::FutureWarning",  # the last lines of a rank that failed are for its error
            "PYTHONSAFEPATH": "1",  # a torch or deepspeed folder here is not the installed one
        }
        variables = environment.variables()
        if device == "cpu":
            variables = pinned(variables, kernels)
            ours |= {"GLOO_SOCKET_IFNAME": "lo", "CUDA_VISIBLE_DEVICES": ""}
        elif visible:
            ours |= {"CUDA_VISIBLE_DEVICES": visible, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}  # nvidia-smi's numbering
        with (self.workspace / "server.log").open("wb") as log:
            self._process = subprocess.Popen(
                [environment.python, "-m", "perfsuite.launch.server", device, str(self.workspace)],
                stdin=theirs.fileno(),
                stdout=log,
                stderr=log,
                env={**variables, **ours, OWN: " ".join([*ours, *VARIABLES])},
                start_new_session=True,  # Ctrl-C reaches only the parent, which then ends everything in order
            )
        theirs.close()
        self._pending = b""
        self._ended: set[int] = set()
        self._closed = False

    def alive(self) -> bool:
        return not self._closed and self._process.poll() is None

    def send(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # receive() reports the dead server
            self._connection.sendall(json.dumps(message).encode() + b"\n")

    def receive(self, seconds: float) -> list[dict[str, Any]]:
        """All messages that have arrived; waits at most so long for the first."""
        ready, _, _ = select.select([self._connection], [], [], max(0.0, seconds))
        if not ready:
            return []
        try:
            data = self._connection.recv(65536)
        except ConnectionResetError:
            data = b""
        if not data:
            return [{"error": "it died"}]
        *lines, self._pending = (self._pending + data).split(b"\n")
        messages = [json.loads(line) for line in lines]
        self._ended |= {message["ended"] for message in messages if "ended" in message}
        return messages

    def tail(self) -> str:
        """The server's last lines."""
        log = self.workspace / "server.log"
        return "\n".join(log.read_text(errors="replace").splitlines()[-12:]) if log.exists() else ""

    def end(self, pids: list[int]) -> None:
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
        shutil.rmtree(self.workspace, ignore_errors=True)


def _server_failure(message: str, server: "_ServerProcess") -> Failure:
    return Failure(kind="raised", rank=None, message=f"The rank server failed: {message}", tail=server.tail())
