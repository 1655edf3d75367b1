"""Nodes of SLURM: one srun starts an agent on each, in a job of its own or inside the job in which this runs.

srun needs no shared folder for output, its end ends the job, and it works in both cases. So neither sbatch nor a
library is needed. The options of ``[tool.perfsuite.slurm]`` in pyproject.toml are those of srun.
"""

import operator
import os
import secrets
import shlex
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass

from perfsuite.catalog.cell import Hardware
from perfsuite.catalog.project import Slurm
from perfsuite.catalog.registry import Catalog
from perfsuite.errors import UnknownName, UsageError
from perfsuite.launch.cluster import Cluster, listen
from perfsuite.launch.handshake import SECRET, new_secret
from perfsuite.launch.node import NodeAgent
from perfsuite.system.networks import own_address
from perfsuite.system.processes import end_with_parent
from perfsuite.system.workspaces import Workspace

TABLE = "tool.perfsuite.slurm"
STATE_SECONDS = 8.0  # for SLURM to write down why a job ended
END_SECONDS = 10.0
LOOK_SECONDS = 2.0  # how often squeue is asked
REACH_SECONDS = 120.0  # for an agent to connect once its job runs, setup included
LOG = "srun.log"
# JOB REASON CODES of squeue(1) that do not pass by themselves
HOPELESS = frozenset(
    {"PartitionConfig", "PartitionNodeLimit", "PartitionTimeLimit", "BadConstraints", "AccountNotAllowed"}
    | {"InvalidAccount", "InvalidQOS", "QOSNotAllowed"}
)
# JOB STATE CODES of squeue(1), and what they mean for a cell
ENDS = {
    "CANCELLED": "was cancelled",
    "TIMEOUT": "reached its time limit",
    "DEADLINE": "reached its deadline",
    "PREEMPTED": "was preempted",
    "REQUEUED": "was requeued",
    "NODE_FAIL": "lost a node",
    "OUT_OF_MEMORY": "ran out of memory",
    "BOOT_FAIL": "could not start: a node did not boot",
    "FAILED": "failed",
    "COMPLETED": "has ended",
}
_GONE = ("down", "fail", "drained", "unknown", "reboot", "power")  # NODE STATE CODES of sinfo(1)


@dataclass(frozen=True)
class Queued:
    """A job in squeue's words."""

    number: str = ""
    state: str = ""
    reason: str = ""

    def __str__(self) -> str:
        return "runs" if self.state == "RUNNING" else f"waits ({self.reason})"


class SlurmNodes(Cluster):
    """Holds at most one job: that of the last cell's number of nodes, with an agent on each."""

    def __init__(self, options: Slurm) -> None:
        self.options = options
        if int(os.environ.get("SLURM_STEP_NUM_TASKS", "1")) > 1:
            raise UsageError("srun started this pytest several times: start it once, it starts its ranks by itself.")
        try:
            self._address = options.address or own_address(socket.gethostname())
            listener = listen(self._address, 0)
        except UsageError as error:
            raise UsageError(f"{error} Write address in [{TABLE}].") from None
        self._port = listener.getsockname()[1]
        self._secret = new_secret()
        super().__init__(listener, self._secret)
        self._srun: subprocess.Popen[bytes] | None = None
        self._work: Workspace | None = None
        self._held: Hardware | None = None
        self.job_name = f"perfsuite-{secrets.token_hex(4)}"
        self._looked, self._job, self._runs = 0.0, Queued(), 0.0
        self._gave_up = ""

    @property
    def inside(self) -> bool:
        """Whether this runs in a job, whose nodes are taken."""
        return "SLURM_JOB_ID" in os.environ

    def why_absent(self, hardware: Hardware, catalog: Catalog) -> str:
        if self.inside:
            count = int(os.environ.get("SLURM_JOB_NUM_NODES", "1"))
            where = f"this job of SLURM has {count}"
        else:
            partitions = [line.split() for line in _ask("sinfo", "-h", "-o", "%R %D").splitlines()]
            known = {name for name, *_ in partitions}
            if not known:
                raise UsageError("SLURM does not answer: sinfo names no partition. Is its controller up?")
            if self.options.partition and self.options.partition not in known:
                raise UnknownName("partition of SLURM", self.options.partition, known, f"It is in [{TABLE}].")
            wanted = self.options.partition
            count = sum(int(nodes) for name, nodes in partitions if name == (wanted or name))
            where = f"SLURM has {count}{' in ' + wanted if wanted else ''}"
        return "" if count >= hardware.nodes else f"{hardware.name} needs {hardware.nodes} nodes, but {where}."

    def fits(self, hardware: Hardware) -> bool:
        place = operator.attrgetter("kind", "ranks", "nodes")
        return self._held is not None and bool(place(self._held) == place(hardware))

    def start(self, hardware: Hardware) -> None:
        if self._gave_up:
            raise UsageError(f"{self._gave_up} No other job is tried in this run.")
        self._looked, self._job, self._runs = 0.0, Queued(), 0.0
        self._work = self._work or Workspace("slurm")
        agent = [sys.executable, "-m", "perfsuite.launch.agent", self._address, str(self._port)]
        lines = [*self.options.setup, f"exec {shlex.join(agent)}"]
        which = ["--overlap"] if self.inside else [f"--job-name={self.job_name}"]
        share = [f"--gpus-per-task={hardware.ranks}"] if hardware.device else [f"--cpus-per-task={hardware.ranks}"]
        command = [
            "srun",
            *which,
            f"--nodes={hardware.nodes}",
            f"--ntasks={hardware.nodes}",
            "--ntasks-per-node=1",
            *share,
            "--kill-on-bad-exit=0",  # the other nodes' agents tell what they know
            *self.options.options(),
            *("bash", "-ec", "\n".join(lines)),
        ]
        with (self._work.folder / LOG).open("wb") as log:
            self._srun = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, SECRET: self._secret},  # other users cannot read a process' variables
                start_new_session=True,
                preexec_fn=lambda: end_with_parent(signal.SIGTERM),  # srun then cancels its job
            )
        self._held = hardware

    def wait_seconds(self) -> float:
        return self.options.wait

    def why_not_yet(self) -> str:
        if self._srun is None or self._srun.poll() is not None:
            said = self._said() or f"srun exited with status {self._srun.returncode if self._srun else 0}"
            return f"SLURM started no agents: {said}."
        now = time.monotonic()
        if now - self._looked < LOOK_SECONDS:
            return ""
        self._looked, before, self._job = now, self._job, self._queued()
        if self._job.reason in HOPELESS:
            return self._give_up(f"SLURM's job {self._job.number} will never start: {self._job.reason}.")
        if self._job != before and self._job.state:
            self.say(f"SLURM's job {self._job.number} {self._job}")
        if self._job.state == "RUNNING" or self.inside:
            self._runs = self._runs or now
            if now - self._runs > REACH_SECONDS:
                number = self._job.number or os.environ.get("SLURM_JOB_ID", "")
                what = f"SLURM's job {number} runs, but its nodes do not reach {self._address}:{self._port}."
                return self._give_up(f"{what} Write an address of this machine that they do reach into [{TABLE}].")
        return ""

    def why_too_late(self) -> str:
        waits = f"SLURM's job {self._job.number} {self._job}" if self._job.number else "SLURM has not started the nodes"
        return self._give_up(f"{waits} after {self.options.wait:g} s: wait in [{TABLE}] says how long it may take.")

    def _give_up(self, reason: str) -> str:
        self._gave_up = reason
        return reason

    def _queued(self) -> Queued:
        """The job in SLURM's queue; without a number if it is not there."""
        words = _ask("squeue", "-h", "-n", self.job_name, "-o", "%i|%T|%r").strip().split("|")
        return Queued(*words) if len(words) == 3 else Queued()

    def why_lost(self, lost: NodeAgent) -> str:
        state, deadline = "", time.monotonic() + STATE_SECONDS
        while time.monotonic() < deadline:
            state = self._state(lost.job)
            if state in ENDS or not state:
                break
            time.sleep(0.5)
        if trouble := self.trouble():
            return trouble
        what = ENDS.get(state, "")
        return f"SLURM's job {lost.job} {what}." if what else ""

    def trouble(self) -> str:
        down = self.down()
        return f"SLURM says that {down}." if down else ""

    def down(self) -> str:
        """The nodes of the job that do not answer SLURM, with their states; empty if all do."""
        names = ",".join(agent.name for agent in self.agents)
        if not names:
            return ""
        lines = [line.split() for line in _ask("sinfo", "-h", "-N", "-n", names, "-o", "%N %T").splitlines()]
        states = dict(line for line in lines if len(line) == 2)
        bad = {name: state for name, state in states.items() if state.endswith("*") or state.startswith(_GONE)}
        return " and ".join(f"node {name} is {state.rstrip('*')} and does not answer" for name, state in bad.items())

    def _state(self, job: str) -> str:
        words = _ask("scontrol", "-o", "show", "job", job).split() if job else []
        state = next((word for word in words if word.startswith("JobState=")), "")
        return state.removeprefix("JobState=")

    def _said(self) -> str:
        """What srun wrote last."""
        log = self._work.folder / LOG if self._work else None
        lines = log.read_text(errors="replace").split("\n") if log and log.exists() else []
        return "; ".join([line.strip().removeprefix("srun: ") for line in lines if line.strip()][-3:])

    def release(self) -> None:
        """End srun, and with it the job or the step."""
        srun, self._srun, self._held = self._srun, None, None
        if srun is None:
            return
        # Agents that got goodbye end it by themselves.
        for number in (0, signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
            if number and srun.poll() is None:
                srun.send_signal(number)
            try:
                srun.wait(END_SECONDS if number else 3.0)
                return
            except subprocess.TimeoutExpired:
                continue

    def close(self) -> None:
        super().close()
        if self._work:
            self._work.close()
            self._work = None


def _ask(*command: str) -> str:
    """The output of a command of SLURM; empty if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""
