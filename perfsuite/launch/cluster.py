"""Ranks on several nodes, each with an agent (``launch/agent.py``) that connects to this process."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import secrets
import shutil
import socket
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from perfsuite.catalog.registry import Catalog
from perfsuite.cell import Hardware
from perfsuite.errors import FileError, UsageError
from perfsuite.launch.servers import END_SECONDS, POLL_SECONDS, RankServer, ServerKind
from perfsuite.rank.process_group import RENDEZVOUS
from perfsuite.records import codec
from perfsuite.records.measurement import Machine
from perfsuite.wire.lines import Gone, Lines, pack, unpack

HELLO_SECONDS = 10.0
ANSWER_SECONDS = 60.0  # to import a catalog and ask a driver
LOOK_SECONDS = 3.0  # how often the scheduler is asked


class Cluster:
    """A place with nodes. A subclass starts the agents and says why one is gone."""

    def __init__(self, listener: socket.socket, token: str = "") -> None:
        self.token = token or secrets.token_hex(16)
        self.agents: list[Agent] = []
        self._listener = listener
        self._machines: dict[str, list[Machine]] = {}

    def start(self, hardware: Hardware) -> None:
        """Start an agent on each of the nodes. Raises UsageError."""
        raise NotImplementedError

    def why_not_yet(self) -> str:
        """The reason why no more agents will come; empty while they may."""
        return ""

    def why_lost(self, lost: Agent) -> str:
        """The reason why a node is gone, as its scheduler knows it; empty if it knows none."""
        return ""

    def trouble(self) -> str:
        """What is wrong with the nodes although they are still connected; empty if nothing is."""
        return ""

    def wait_seconds(self) -> float:
        """How long agents may take to come."""
        raise NotImplementedError

    def release(self) -> None:
        """Give the nodes back."""

    def takes_turns(self, hardware: Hardware) -> bool:
        """The pipes of ``rank/turns.py`` do not reach another node."""
        return False

    @contextlib.contextmanager
    def lease(self, hardware: Hardware, catalog: Catalog) -> Iterator[list[int]]:
        """The scheduler leases whole nodes, or parts of them that no other job has."""
        self._connect(hardware, catalog)
        yield []

    def servers(self, kind: ServerKind, nodes: int) -> list[RankServer]:
        asked = {
            "device": kind.device,
            "kernels": kind.kernels,
            "python": kind.environment.python,
            "path": kind.environment.path,
            "overrides": kind.environment.overrides,
        }
        servers: list[RankServer] = []
        for agent in self.agents[:nodes]:
            agent.tell({"serve": asked})
            servers.append(NodeServer(self, agent))
        return servers

    def describe(self, hardware: Hardware, catalog: Catalog, devices: Sequence[int]) -> Machine:
        """All nodes as one machine. Its identity is that of the set of nodes; ``nodes`` says whose GPUs they are."""
        self._connect(hardware, catalog)
        machines = self._machines[hardware.name]
        names = [agent.name for agent in self.agents[: hardware.nodes]]
        if len(machines) == 1:
            return msgspec.structs.replace(machines[0], nodes=names)
        who = "\n".join(sorted(machine.identity for machine in machines))
        return msgspec.structs.replace(
            machines[0],
            identity=hashlib.sha256(who.encode()).hexdigest()[:12],
            gpus=[gpu for machine in machines for gpu in machine.gpus],
            links={
                f"{name} {ranks}": link
                for name, machine in zip(names, machines, strict=True)
                for ranks, link in machine.links.items()
            },
            nodes=names,
        )

    def conditions(self, hardware: Hardware, devices: Sequence[int]) -> ClusterConditions:
        return ClusterConditions(self.agents[: hardware.nodes])

    def close(self) -> None:
        """Nothing stays on a node; no agent can come any more."""
        self._drop()
        self._listener.close()

    def _drop(self) -> None:
        """Let the agents end, and give the nodes back."""
        for agent in self.agents:
            agent.leave()
        self.agents.clear()
        self._machines.clear()
        self.release()

    def _connect(self, hardware: Hardware, catalog: Catalog) -> None:
        """An agent on each node of the hardware, and each must have its devices. Raises UsageError."""
        if any(agent.lost for agent in self.agents) or not self.fits(hardware):
            self._drop()
            self.start(hardware)
        self._accept(hardware.nodes)
        if hardware.name in self._machines:
            return
        machines, question = [], {"describe": one_node(hardware), "catalogs": [str(one) for one in catalog.folders]}
        for agent in self.agents[: hardware.nodes]:
            answer = agent.ask(question, self)
            if "absent" in answer:
                raise UsageError(f"Node {agent.name}: {answer['absent']}")
            machines.append(msgspec.convert(answer["machine"], Machine))
        if len({machine.device for machine in machines}) > 1:
            told = ", ".join(f"{a.name}: {m.device}" for a, m in zip(self.agents, machines, strict=False))
            raise UsageError(f"{hardware.name} needs nodes that are alike, but these differ: {told}.")
        self._machines[hardware.name] = machines

    def fits(self, hardware: Hardware) -> bool:
        """Whether the nodes that are held will do."""
        return len(self.agents) >= hardware.nodes

    def _accept(self, nodes: int) -> None:
        deadline = time.monotonic() + self.wait_seconds()
        while len(self.agents) < nodes:
            self._listener.settimeout(1.0)
            try:
                lines = Lines(self._listener.accept()[0])
                hello = lines.first(HELLO_SECONDS).get("hello", {})
            except TimeoutError:
                if reason := self.why_not_yet():
                    raise UsageError(reason) from None
                if time.monotonic() > deadline:
                    came = ", ".join(agent.name for agent in self.agents) or "none"
                    raise UsageError(
                        f"{nodes} nodes are needed, but {came} came within {self.wait_seconds():g} s."
                    ) from None
                continue
            except Gone:
                continue  # somebody who is no agent
            if not secrets.compare_digest(str(hello.get("token", "")), self.token):
                lines.close()
                continue
            self.agents.append(Agent(lines, hello["node"], hello["number"], hello.get("job", "")))
            self.agents.sort(key=lambda agent: agent.number)


def one_node(hardware: Hardware) -> str:
    """The name of one of its nodes: ``h100_x8`` of ``h100_x8n2``."""
    return dataclasses.replace(hardware, nodes=1).name


class Agent:
    """The parent's end of an agent. ``lost`` is why its connection ended."""

    def __init__(self, lines: Lines, name: str, number: int, job: str) -> None:
        self.lines, self.name, self.number, self.job = lines, name, number, job
        self.lost = ""
        self.conditions: Mapping[str, float | str] = {}

    def tell(self, message: Mapping[str, Any]) -> None:
        """A lost agent is reported by ``hear``."""
        try:
            self.lines.send(dict(message))
        except Gone as error:
            self.lost = self.lost or str(error)

    def hear(self, seconds: float) -> list[dict[str, Any]]:
        if self.lost:
            return []
        try:
            return self.lines.receive(seconds)
        except Gone as error:
            self.lost = str(error)
            return []

    def ask(self, question: Mapping[str, Any], cluster: Cluster) -> dict[str, Any]:
        """Raises UsageError."""
        self.tell(question)
        try:
            return self.lines.first(ANSWER_SECONDS)
        except Gone as error:
            self.lost = str(error)
            raise UsageError(f"Node {self.name}: {cluster.why_lost(self) or error}.") from error

    def leave(self) -> None:
        """Goodbye: its servers are dead from now on."""
        self.tell({"bye": True})
        self.lost = self.lost or "it was given back"
        self.lines.close()


class ClusterConditions:
    """The conditions of every node, as the agents told them at the end of a cell."""

    def __init__(self, agents: Sequence[Agent]) -> None:
        self._agents = agents

    def look(self) -> None:
        """The agents look."""

    def told(self) -> dict[str, float | str]:
        return {f"{agent.name} {name}": value for agent in self._agents for name, value in agent.conditions.items()}


class NodeServer:
    """A rank server on another node, through its agent."""

    def __init__(self, cluster: Cluster, agent: Agent) -> None:
        self.node = agent.name
        self.workspace = Path(tempfile.mkdtemp(prefix="perfsuite-"))
        self._cluster, self._agent = cluster, agent
        self._folder: Path | None = None
        self._has_rendezvous = False
        self._heard: list[dict[str, Any]] = []
        self._tail = ""
        self._looked = time.monotonic()
        self._closed = False

    def alive(self) -> bool:
        return not (self._closed or self._agent.lost)

    def fileno(self) -> int:
        return self._agent.lines.fileno()

    def send(self, message: dict[str, Any]) -> None:
        if "start" in message:
            self._folder = Path(message["start"])
            self._has_rendezvous = False
            self._heard.clear()
            message = message | {"job.json": (self._folder / "job.json").read_text()}
        self._agent.tell(message)

    def receive(self, seconds: float) -> list[dict[str, Any]]:
        self._listen(0 if self._heard else seconds)
        heard, self._heard = self._heard, []
        if heard:
            return heard
        if self._agent.lost:
            time.sleep(POLL_SECONDS)
            return [{"error": self._cluster.why_lost(self._agent) or f"it is gone: {self._agent.lost}"}]
        if time.monotonic() - self._looked > LOOK_SECONDS:
            self._looked = time.monotonic()
            if trouble := self._cluster.trouble():
                return [{"error": trouble}]
        return []

    def _listen(self, seconds: float) -> None:
        """Write files into the cell's folder; keep what else was said."""
        for message in self._agent.hear(seconds):
            if "file" in message:
                self._write(message)
            elif "gone" in message:
                self._agent.conditions = message["gone"]
                self._folder = None
            else:
                self._tail = message.get("tail", self._tail)
                self._heard.append(message)

    def _write(self, message: Mapping[str, Any]) -> None:
        if self._folder is None or not self._folder.is_dir():
            return
        path, data = self._folder / Path(message["file"]).name, unpack(message["data"])
        if path.name == RENDEZVOUS:
            self._has_rendezvous = True
        if path.suffix == ".log":
            with path.open("ab") as file:
                file.seek(message["at"])
                file.truncate()
                file.write(data)
        elif path.suffix == ".progress":
            path.write_bytes(data)
        else:
            codec.write_bytes(path, data)

    def mirror(self, folder: Path) -> None:
        self._listen(0)
        rendezvous = folder / RENDEZVOUS
        if not self._has_rendezvous and rendezvous.exists():
            self._has_rendezvous = True
            self._agent.tell({RENDEZVOUS: pack(rendezvous.read_bytes())})

    def ask_for_stacks(self, pids: Iterable[int]) -> None:
        self._agent.tell({"stacks": list(pids)})

    def tail(self) -> str:
        return self._tail

    def end(self, pids: Sequence[int]) -> None:
        self._agent.tell({"end": list(pids)})
        deadline = time.monotonic() + END_SECONDS
        while self._folder and self.alive() and time.monotonic() < deadline:
            self._listen(POLL_SECONDS)
        self._heard.clear()

    def close(self) -> None:
        """The agent ends its server when it gets another, or goodbye."""
        self._closed = True
        shutil.rmtree(self.workspace, ignore_errors=True)


def listen(host: str, port: int) -> socket.socket:
    """A listener there. Raises UsageError."""
    try:
        return socket.create_server((host, port), backlog=1024)
    except OSError as error:
        raise FileError(f"No port for the nodes' agents can be opened at {host}:{port}: {error.strerror}.") from error
