"""A real SLURM with two nodes on this machine: munge, slurmctld and two slurmd, in a folder of their own."""

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

NODES = ("c1", "c2")
NEEDED = ("munged", "slurmctld", "slurmd", "srun", "sinfo", "scancel")
START_SECONDS = 60
CORES = 4  # of a node: more than there are
_PATH = os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"])
_CONF = """ClusterName=perfsuite
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
CommunicationParameters=NoInAddrAny
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/builtin
SlurmdParameters=config_overrides
ReturnToService=2
SlurmdTimeout=9
KillWait=2
UnkillableStepTimeout=10
MpiDefault=none
{nodes}
PartitionName=all Nodes={names} Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
"""


def why_not() -> str:
    """The reason why there can be no SLURM here; empty if there can."""
    missing = [name for name in NEEDED if shutil.which(name, path=_PATH) is None]
    if missing:
        return f"{', '.join(missing)} are not installed: apt-get install slurmctld slurmd slurm-client munge"
    return "" if os.getuid() == 0 else "slurmd starts jobs of others, which only root can"


@dataclass
class Slurm:
    """The cluster's processes. ``variables`` let commands of SLURM find it."""

    folder: Path
    variables: dict[str, str]
    started: dict[str, subprocess.Popen[bytes]]

    def ask(self, *command: str) -> str:
        """The output of a command of SLURM."""
        done = subprocess.run(command, env=self.variables, capture_output=True, text=True, timeout=30, check=False)
        return done.stdout.strip()

    def start(self, node: str) -> None:
        """A node's slurmd."""
        self.started[node] = _start(["slurmd", "-D", "-N", node, "-f", str(self.folder / "slurm.conf")], self.variables)

    def wait_up(self) -> None:
        """Until jobs can start on every node. Raises AssertionError."""
        deadline = time.monotonic() + START_SECONDS
        while not (states := {*self.ask("sinfo", "-h", "-N", "-o", "%T").split()}) or not states <= {
            "idle",
            "mixed",
            "completing",
        }:
            assert time.monotonic() < deadline, f"{states}: {self.logs()}"
            if any("down" in state for state in states):
                self.ask("scontrol", "update", f"NodeName={','.join(NODES)}", "State=RESUME")
            time.sleep(0.2)

    def logs(self) -> str:
        """The ends of all logs."""
        return "\n".join(f"{one.name}: {one.read_text(errors='replace')[-800:]}" for one in self.folder.glob("*.log"))


@contextlib.contextmanager
def slurm(folder: Path) -> Iterator[Slurm]:
    """Start it; nothing of it is left afterwards."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    (folder / "state").mkdir()
    controller, *ports = _free_ports(1 + len(NODES))
    nodes = "\n".join(
        f"NodeName={name} NodeHostname={socket.gethostname()} NodeAddr=127.0.0.1 Port={port} CPUs={CORES} State=UNKNOWN"
        for name, port in zip(NODES, ports, strict=True)
    )
    user, host = getpass.getuser(), socket.gethostname()
    names = ",".join(NODES)
    (folder / "slurm.conf").write_text(
        _CONF.format(folder=folder, user=user, host=host, controller=controller, nodes=nodes, names=names)
    )
    variables = {**os.environ, "PATH": _PATH, "SLURM_CONF": str(folder / "slurm.conf")}
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o600)
    own = {"key-file": key, "log-file": folder / "munge.log", "pid-file": folder / "munge.pid"}
    own |= {"seed-file": folder / "munge.seed", "socket": folder / "munge.socket"}
    munge = ["munged", "--foreground", "--force", *(f"--{name}={path}" for name, path in own.items())]
    cluster = Slurm(folder, variables, {})
    try:
        cluster.started["munge"] = _start(munge, variables)
        _wait_for(folder / "munge.socket")
        cluster.started["slurmctld"] = _start(["slurmctld", "-D", "-f", str(folder / "slurm.conf")], variables)
        for name in NODES:
            cluster.start(name)
        cluster.wait_up()
        yield cluster
    finally:
        cluster.ask("scancel", "-u", user)
        for process in reversed(cluster.started.values()):
            process.send_signal(signal.SIGTERM)
        for process in cluster.started.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait()


def _start(command: list[str], variables: dict[str, str]) -> subprocess.Popen[bytes]:
    command[0] = shutil.which(command[0], path=_PATH) or command[0]
    return subprocess.Popen(command, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} was not made"
        time.sleep(0.05)


def _free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports
