"""The agent of a node: it runs a rank server there, for a parent on another machine.

It connects to the parent, so a node needs no open port. It reads and writes lines of JSON (``records/wire_lines.py``):

    python -m perfsuite.launch.agent HOST PORT

    both prove the run's secret (``launch/handshake.py``)
    → {"hello": {"node": NAME, "number": N, "job": SLURM'S}}
    ← {"describe": HARDWARE, "catalogs": [...]}   → {"machine": {...}} or {"absent": REASON}
    ← {"serve": {"device": …, "kernels": …, "python": …, "path": [...], "overrides": [...]}}
    ← {"start": [RANK, …], "job": TEXT}           → what the rank server says, see ``launch/server.py``
    ← {"rendezvous": DATA}, {"stacks": [pid, …]}
    ← {"end": [pid, …]}                           → {"gone": the conditions of the node while the cell ran}
    ← {"bye": …}                                  the agent ends

The ranks write their files into a folder of the node. The agent sends what is new in it, so no file system is shared:
→ {"file": NAME, "at": OFFSET, "data": DATA}. A file is sent before the parent is told that its rank has ended.
"""

import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from perfsuite.catalog.cell import parse_hardware
from perfsuite.catalog.registry import Catalog
from perfsuite.environments.environments import Environment
from perfsuite.errors import PerfsuiteError
from perfsuite.launch.blame import why_full
from perfsuite.launch.handshake import prove_to, take_secret
from perfsuite.launch.hardware_here import describe, why_absent
from perfsuite.launch.servers import POLL_SECONDS, LocalServer, ServerKind
from perfsuite.rank.process_group import NODE_ADDRESS, RENDEZVOUS
from perfsuite.records.failure import Failure
from perfsuite.records.job import JOB
from perfsuite.records.wire_lines import Gone, Lines, pack, unpack
from perfsuite.system.conditions import Conditions
from perfsuite.system.machine import gpus
from perfsuite.system.waits import wait_readable

START_SECONDS = 300.0  # between the parent's start and this
RETRY_SECONDS = 0.2
_SENT = frozenset({"progress", "json", "failure.json", "log"})  # what each rank writes, after its name


def _is_sent(name: str) -> bool:
    """Whether the parent needs the file: a rank's own, or that of all."""
    whose, _, kind = name.partition(".")
    return name == RENDEZVOUS or (kind in _SENT and whose.startswith("rank") and whose[4:].isdecimal())


def attend(host: str, port: int, hello: dict[str, Any], secret: str, seconds: float) -> bool:
    """Connect within so many seconds and do what the parent asks. Returns whether it said goodbye; otherwise the
    connection was lost, or there was none. Whatever the reason, no rank is left. Somebody at that port who does not
    know the secret is asked for nothing, and nothing is done for him.
    """
    lines = _connect(host, port, secret, time.monotonic() + seconds)
    if lines is None:
        return False
    os.environ[NODE_ADDRESS] = lines.own_address
    agent = Agent(lines)
    try:
        lines.send({"hello": hello})
        return agent.obey()
    except Gone:
        return False
    finally:
        agent.close()


def _connect(host: str, port: int, secret: str, deadline: float) -> Lines | None:
    """The parent's connection; None if there is none before the deadline, with the reason on stderr."""
    reason = "nobody answers"
    while time.monotonic() < deadline:
        try:
            return prove_to(socket.create_connection((host, port), timeout=RETRY_SECONDS * 10), secret)
        except Gone as error:
            reason = f"who answers is not the pytest of this run: {error}"
        except OSError as error:
            reason = error.strerror or str(error)
        time.sleep(RETRY_SECONDS)
    print(f"perfsuite: this node cannot join at {host}:{port}: {reason}.", file=sys.stderr)
    return None


class Agent:
    """One connection's agent. It has at most one rank server and one cell at a time."""

    def __init__(self, lines: Lines) -> None:
        self.lines = lines
        self.server: LocalServer | None = None
        self.folder: Path | None = None
        self.sent: dict[str, Any] = {}  # of each file the data, or the size of one that grows
        self.asked: list[int] = []
        self.ranks: dict[int, int] = {}  # by pid
        self.conditions = Conditions([])

    def obey(self) -> bool:
        """Until goodbye. Raises Gone."""
        while True:
            heard: list[Lines | LocalServer] = [self.lines, *([self.server] if self.server else [])]
            wait_readable(heard, POLL_SECONDS)
            for message in self.lines.receive(0):
                if "bye" in message:
                    return True
                try:
                    self._do(message)
                except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
                    raise Gone(f"the parent said what no parent says: {error!r}") from error
            if self.server and self.server.alive():
                for message in self.server.receive(0):
                    if "error" in message:
                        message |= {"tail": self.server.tail()}
                    if "started" in message:
                        self.ranks = dict(zip(message["started"], self.asked, strict=True))
                    self._mirror()
                    self._tell_full(message)
                    self.lines.send(message)
            self._mirror()

    def _do(self, message: dict[str, Any]) -> None:
        if "describe" in message:
            self.lines.send(_described(message["describe"], message["catalogs"]))
        elif "serve" in message:
            self._serve(message["serve"])
        elif "start" in message:
            self._start(message["start"], message["job"])
        elif RENDEZVOUS in message and self.folder:
            self.sent[RENDEZVOUS] = True  # the parent has it
            part = self.folder / f"{RENDEZVOUS}.part"
            part.write_bytes(unpack(message[RENDEZVOUS]))
            part.rename(self.folder / RENDEZVOUS)
        elif "stacks" in message and self.server:
            self.server.ask_for_stacks(message["stacks"])
        elif "end" in message:
            self._end(message["end"])

    def _serve(self, asked: dict[str, Any]) -> None:
        self.close()
        environment = Environment(
            asked["python"],
            tuple(asked["path"]),
            overrides=tuple((name, value) for name, value in asked["overrides"]),
        )
        try:
            self.server = LocalServer(ServerKind(asked["device"], "", environment, asked["kernels"]))
        except OSError as error:
            self.lines.send({"error": str(error)})

    def _start(self, ranks: list[int], job: str) -> None:
        if self.server is None:
            return
        try:
            self.folder = Path(tempfile.mkdtemp(dir=self.server.workspace, prefix="cell-"))
            (self.folder / JOB).write_text(job)
        except OSError as error:
            self.lines.send({"error": str(error)})
            return
        self.sent.clear()
        self.asked = ranks
        self.conditions = Conditions([gpu.index for gpu in gpus()])
        self.server.start(self.folder, ranks)

    def _end(self, pids: list[int]) -> None:
        if self.server:
            self.server.end(pids)
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)
        self.folder = None
        self.lines.send({"gone": self.conditions.summary()})

    def _mirror(self) -> None:
        """Send what is new in the folder."""
        if self.folder is None:
            return
        self.conditions.look()
        for path in sorted(self.folder.iterdir()):
            if not _is_sent(path.name):
                continue
            grows = path.suffix == ".log"
            at = self.sent.get(path.name, 0) if grows else 0
            if not grows and path.suffix != ".progress" and path.name in self.sent:
                continue  # written once
            with path.open("rb") as file:
                file.seek(at)
                data = file.read()
            if (grows and not data) or (not grows and self.sent.get(path.name) == data):
                continue
            self.sent[path.name] = at + len(data) if grows else data
            self.lines.send({"file": path.name, "at": at, "data": pack(data)})

    def _tell_full(self, message: dict[str, Any]) -> None:
        """A rank that cannot write why it ends has at least this reason."""
        if not message.get("status") or self.folder is None:
            return
        name = f"rank{self.ranks.get(message['ended'])}.failure.json"
        if name in self.sent or (self.folder / name).exists() or not (reason := why_full(self.folder)):
            return
        failure = Failure(kind="raised", rank=None, message=reason)
        self.lines.send({"file": name, "at": 0, "data": pack(msgspec.json.encode(failure))})

    def close(self) -> None:
        """End the server and its ranks."""
        if self.server:
            self.server.close()
        self.server = self.folder = None


def hello_of(variables: Mapping[str, str]) -> dict[str, Any]:
    """What the agent of this node says first."""
    node = variables.get("SLURMD_NODENAME") or variables.get("PERFSUITE_NODE") or socket.gethostname()
    number = variables.get("SLURM_NODEID") or variables.get("GROUP_RANK") or variables.get("RANK") or "0"
    return {
        "node": node,
        "number": int(number),
        "job": variables.get("SLURM_JOB_ID", ""),
    }


def _described(hardware: str, catalogs: list[str]) -> dict[str, Any]:
    """This node, which is one of those that the hardware has."""
    catalog = Catalog(tuple(map(Path, catalogs)))
    one = parse_hardware(hardware, catalog)
    if reason := why_absent(one, catalog):
        return {"absent": reason}
    return {"machine": msgspec.to_builtins(describe(one, catalog))}


if __name__ == "__main__":
    try:
        own_secret = take_secret(os.environ)
    except PerfsuiteError as error:
        sys.exit(f"perfsuite: {error}")
    sys.exit(0 if attend(sys.argv[1], int(sys.argv[2]), hello_of(os.environ), own_secret, START_SECONDS) else 1)
