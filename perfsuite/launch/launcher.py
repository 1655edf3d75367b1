"""Runs the ranks of one cell from warm servers and watches them until all are done or the first one fails."""

import functools
import itertools
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from perfsuite.environments.environments import Environment
from perfsuite.errors import FileError, PerfsuiteError
from perfsuite.launch.blame import blame_exit, blame_hang, last_lines
from perfsuite.launch.places import Places
from perfsuite.launch.servers import POLL_SECONDS, STACK_SECONDS, RankServer, ServerKind
from perfsuite.records import codec
from perfsuite.records.failure import Failure
from perfsuite.records.job import JOB, SCRATCH, Job
from perfsuite.records.progress import NOT_STARTED, Progress, read_progress
from perfsuite.records.sample import RankSample
from perfsuite.system.cgroup import oom_kills
from perfsuite.system.deadline import OutOfTime, check
from perfsuite.system.waits import wait_readable

GRACE_SECONDS = 0.1
MOST_SERVERS = 4  # warm at once: a device kind's, each with other GPUs
COMPILE_SECONDS = 1800.0  # DeepSpeed's async_io takes eight minutes of one core
LONGER = "If it needs longer, give --timeout, or perf_timeout in pytest's ini."


class CellFailed(PerfsuiteError):
    """The cell has no result; ``failure`` says why."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


Watcher = Callable[[list[Progress], float], None]  # every rank's progress, seconds since the start


@dataclass(frozen=True)
class _Rank:
    server: RankServer
    pid: int  # on its node
    number: int


class Launcher:
    """Owns the rank servers of one process, all in one environment. ``close()`` leaves nothing running.

    A cell is ended if a rank makes no progress for ``start_timeout`` seconds until its first step, and for
    ``step_timeout`` from then on. ``places`` says where servers are: on this machine, or one on each of several nodes.
    """

    def __init__(
        self, start_timeout: float, step_timeout: float, environment: Environment, kernels: str, places: Places
    ) -> None:
        self.start_timeout, self.step_timeout = start_timeout, step_timeout
        self.environment = environment
        self.kernels = kernels
        self.places = places
        self._servers: dict[tuple[str, str, int, str], list[RankServer]] = {}

    def run(self, job: Job, devices: list[int], watch: Watcher) -> list[RankSample]:
        """Run a cell's ranks to their end and return their samples, rank by rank.

        ``devices`` are the accelerators of this machine that the cell has leased (empty on a CPU, and if the ranks are
        on other nodes). Raises CellFailed, and OutOfTime when a limit of time is used up; its ranks have ended then.
        """
        check()
        servers = self._servers_for(job, ",".join(map(str, devices)))
        folder = Path(tempfile.mkdtemp(dir=servers[0].workspace, prefix="cell-"))
        ranks: list[_Rank] = []
        try:
            codec.write(folder / JOB, job)
            share = job.node_size
            for number, server in enumerate(servers):
                server.start(folder, list(range(number * share, (number + 1) * share)))
            for number, server in enumerate(servers):
                started = self._started(server, servers, folder, watch)
                ranks += [_Rank(server, pid, number * share + local) for local, pid in enumerate(started)]
            self._wait(servers, folder, ranks, watch)
            return [self._result(folder, rank) for rank in range(job.world_size)]
        except OutOfTime:
            if len(ranks) < job.world_size:  # a server that still imports or builds would answer later
                for server in servers:
                    server.close()
            raise
        finally:
            for server in servers:
                server.end([rank.pid for rank in ranks if rank.server is server])
            shutil.rmtree(folder / SCRATCH, ignore_errors=True)

    def close(self) -> None:
        """End all servers and their ranks."""
        for servers in self._servers.values():
            for server in servers:
                server.close()
        self._servers.clear()

    def _servers_for(self, job: Job, visible: str) -> list[RankServer]:
        """The warm ones, if they live. The one that was idle longest ends for a new one: each holds much memory."""
        script = job.model if job.model.command else None
        key = (job.device, visible, job.nodes, job.model.name if script else "")
        servers = self._servers.pop(key, [])
        if not servers or not all(server.alive() for server in servers):
            idle = [self._servers.pop(one) for one in list(self._servers)[: 1 - MOST_SERVERS]]
            for server in (*servers, *itertools.chain.from_iterable(idle)):
                server.close()
            kind = ServerKind(job.device, visible, self.environment, self.kernels, script)
            servers = self.places.at(job.nodes).servers(kind, job.nodes)
        self._servers[key] = servers
        return servers

    def _started(self, server: RankServer, servers: Sequence[RankServer], folder: Path, watch: Watcher) -> list[int]:
        """The pids of the ranks of a server, which may have to build an extension first."""
        limit, begin = self.start_timeout, time.monotonic()
        deadline = begin + limit
        while True:
            check()
            watch([NOT_STARTED], time.monotonic() - begin)
            for one in servers:
                one.mirror(folder)
            for message in server.receive(POLL_SECONDS):
                if "started" in message:
                    pids: list[int] = message["started"]
                    return pids
                if "error" in message:
                    raise _server_failed(message["error"], server, message.get("explained", False))
                if "preparing" in message or "prepared" in message:
                    limit = max(self.start_timeout, COMPILE_SECONDS if "preparing" in message else 0)
                    deadline = time.monotonic() + limit
            if time.monotonic() > deadline:
                late = f"{server.why_not_ready()} within {limit:g} s. {LONGER}"
                raise _server_failed(late, server, server.starts_command)

    def _wait(self, servers: Sequence[RankServer], folder: Path, ranks: Sequence[_Rank], watch: Watcher) -> None:
        """Return when every rank has ended successfully. Raises CellFailed at the first that has not."""
        begin, nodes = time.monotonic(), [rank.server.node for rank in ranks]
        running = {(rank.server, rank.pid): rank for rank in ranks}
        seen: list[Progress] = [NOT_STARTED] * len(ranks)
        moved = [begin] * len(ranks)
        killed_before = oom_kills() if not any(nodes) else None  # another node's is not counted here
        while running:
            check()
            ended = self._ended(servers, folder, running, POLL_SECONDS)
            if any(ended.values()):
                # the first death may be reported a moment later
                ended |= self._ended(servers, folder, running, GRACE_SECONDS)
                bad = {rank: status for rank, status in ended.items() if status}
                raise CellFailed(at_node(blame_exit(folder, len(ranks), bad, killed_before), nodes))
            now = time.monotonic()
            for number in range(len(ranks)):
                progress = read_progress(folder / f"rank{number}.progress")
                if progress != seen[number]:
                    seen[number], moved[number] = progress, now
            watch(seen, now - begin)
            still = sorted(rank.number for rank in running.values())
            for rank in running.values():
                limit = self.step_timeout if seen[rank.number].in_step else self.start_timeout
                if now - max(moved[rank.number], begin) > limit:
                    ask = functools.partial(_ask_for_stacks, servers, folder, list(running.values()))
                    raise CellFailed(at_node(blame_hang(folder, still, seen, limit, ask), nodes))

    def _ended(
        self, servers: Sequence[RankServer], folder: Path, running: dict[tuple[RankServer, int], _Rank], seconds: float
    ) -> dict[int, int]:
        """Remove the ranks that have ended from ``running``; returns their wait statuses by their numbers."""
        statuses = {}
        wait_readable(servers, seconds)
        for server in servers:
            for message in server.receive(0):
                if "error" in message:
                    raise _server_failed(message["error"], server, message.get("explained", False))
                rank = running.pop((server, message.get("ended", -1)), None)
                if rank is not None:
                    statuses[rank.number] = int(message["status"])
            server.mirror(folder)
        return statuses

    def _result(self, folder: Path, rank: int) -> RankSample:
        try:
            return codec.read(folder / f"rank{rank}.json", RankSample)
        except FileError as error:
            message = f"Rank {rank} exited successfully but left no complete result: {error}"
            raise CellFailed(
                Failure(kind="result", rank=rank, message=message, tail=last_lines(folder, rank))
            ) from error


def _ask_for_stacks(servers: Sequence[RankServer], folder: Path, running: Sequence[_Rank]) -> None:
    """Let these ranks write their stacks into their logs, and wait for them."""
    for server in servers:
        server.ask_for_stacks([rank.pid for rank in running if rank.server is server])
    time.sleep(STACK_SECONDS)
    for server in servers:
        server.mirror(folder)


def _server_failed(message: str, server: RankServer, explained: bool = False) -> CellFailed:
    """The failure of a server, which is closed: it answers no further job. What its node's scheduler or a script's
    command explains stands for itself.
    """
    whose = "" if explained else f"Node {server.node}: " if server.node else "The rank server failed: "
    tail = server.tail()
    server.close()
    message = f"{whose}{message}"
    return CellFailed(Failure(kind="raised", rank=None, message=message, tail=tail, of_command=server.starts_command))


def at_node(failure: Failure, nodes: Sequence[str]) -> Failure:
    """With the node of the rank that is to blame, if there are several. ``nodes`` are those of the ranks."""
    if len(set(nodes)) < 2 or failure.rank is None:
        return failure
    return msgspec.structs.replace(failure, message=f"Node {nodes[failure.rank]}: {failure.message}")
