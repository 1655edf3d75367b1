"""Ranks on several nodes, each with an agent (``launch/agent.py``) that connects to this process."""

import contextlib
import dataclasses
import hashlib
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self, TypeVar

import msgspec

from perfsuite.catalog.cell import Hardware
from perfsuite.catalog.registry import Catalog
from perfsuite.errors import UsageError
from perfsuite.launch.handshake import Door
from perfsuite.launch.node import ClusterConditions, NodeAgent, NodeServer, differences
from perfsuite.launch.servers import RankServer, ServerKind
from perfsuite.records.measurement import Machine
from perfsuite.records.wire_lines import Gone, Lines
from perfsuite.system.deadline import check

HELLO_SECONDS = 10.0
T = TypeVar("T")


class Hello(msgspec.Struct, frozen=True):
    """What an agent says first: the name and the number of its node, and the job of the scheduler."""

    node: str
    number: int
    job: str = ""


class Cluster:
    """A place with nodes. A subclass starts the agents and says why one is gone."""

    takes_turns = False  # the pipes of rank/turns.py do not reach another node

    def __init__(self, listener: socket.socket, secret: str) -> None:
        self.agents: list[NodeAgent] = []
        self.say: Callable[[str], None] = lambda text: None  # what is waited for
        self._door = Door(listener, secret)
        self._machines: dict[str, list[Machine]] = {}

    def why_absent(self, hardware: Hardware, catalog: Catalog) -> str:
        """The reason why there are too few nodes; empty if there are enough. Raises UsageError if nobody knows."""
        raise NotImplementedError

    def start(self, hardware: Hardware) -> None:
        """Start an agent on each of the nodes. Raises UsageError."""
        raise NotImplementedError

    def why_not_yet(self) -> str:
        """The reason why no more agents will come; empty while they may."""
        return ""

    def why_too_late(self) -> str:
        """The reason why too few agents have come in time; empty if nothing is known."""
        return ""

    def why_lost(self, lost: NodeAgent) -> str:
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

    def at(self, nodes: int) -> Self:
        return self

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
            servers.append(NodeServer(agent, self.why_lost, self.trouble))
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
            links=_by_node(names, [machine.links for machine in machines]),
            networks=_by_node(names, [machine.networks for machine in machines]),
            nodes=names,
        )

    def conditions(self, hardware: Hardware, devices: Sequence[int]) -> ClusterConditions:
        agents = self.agents[: hardware.nodes]
        machines = self._machines.get(hardware.name, [])
        return ClusterConditions(agents, differences([agent.name for agent in agents], machines))

    def close(self) -> None:
        """Nothing stays on a node; no agent can come any more."""
        self._drop()
        self._door.close()

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
        try:
            self._accept(self.expected(hardware))
        except UsageError:
            self._drop()
            raise
        if hardware.name in self._machines:
            return
        machines = []
        question = {"describe": one_node(hardware), "catalogs": [str(folder) for folder in catalog.folders]}
        for agent in self.agents[: hardware.nodes]:
            answer = agent.ask(question, self.why_lost)
            if "absent" in answer:
                raise UsageError(f"Node {agent.name}: {answer['absent']}")
            machines.append(_machine_of(agent, answer))
        if len({machine.device for machine in machines}) > 1:
            devices = ", ".join(f"{a.name}: {m.device}" for a, m in zip(self.agents, machines, strict=False))
            raise UsageError(f"{hardware.name} needs nodes that are alike, but these differ: {devices}.")
        self._machines[hardware.name] = machines

    def fits(self, hardware: Hardware) -> bool:
        """Whether the nodes that are held will do."""
        return len(self.agents) >= hardware.nodes

    def expected(self, hardware: Hardware) -> int:
        """How many agents will come."""
        return hardware.nodes

    def _accept(self, nodes: int) -> None:
        deadline = time.monotonic() + self.wait_seconds()
        while len(self.agents) < nodes:
            check()
            for lines in self._door.admit(min(1.0, max(0.0, deadline - time.monotonic()))):
                self._greet(lines)
            if len(self.agents) >= nodes:
                return
            if reason := self.why_not_yet():
                raise UsageError(reason)
            if time.monotonic() >= deadline:
                if reason := self.why_too_late():
                    raise UsageError(reason)
                came = ", ".join(agent.name for agent in self.agents) or "none"
                raise UsageError(f"{nodes} nodes are needed, but {came} came within {self.wait_seconds():g} s.")

    def _greet(self, lines: Lines) -> None:
        """Take in an agent, which has proven the secret. One that then says something else is not taken."""
        try:
            hello = msgspec.convert(lines.first(HELLO_SECONDS).get("hello"), Hello)
        except (Gone, msgspec.ValidationError):
            lines.close()
            return
        self.agents.append(NodeAgent(lines, hello.node, hello.number, hello.job))
        self.agents.sort(key=lambda agent: agent.number)


def _by_node(names: Sequence[str], facts: Sequence[Mapping[str, T]]) -> dict[str, T]:
    """The facts of all nodes, each with its node's name."""
    return {f"{name} {key}": value for name, each in zip(names, facts, strict=True) for key, value in each.items()}


def _machine_of(agent: NodeAgent, answer: Mapping[str, Any]) -> Machine:
    """What the agent says about its node. Raises UsageError for an answer that is none."""
    try:
        return msgspec.convert(answer.get("machine"), Machine)
    except msgspec.ValidationError as error:
        raise UsageError(f"Node {agent.name}: its agent does not say which machine it is: {error}.") from error


def one_node(hardware: Hardware) -> str:
    """The name of one of its nodes: ``h100_x8`` of ``h100_x8n2``."""
    return dataclasses.replace(hardware, nodes=1).name


def listen(host: str, port: int) -> socket.socket:
    """A listener at that address alone. Raises UsageError."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address, family=family, backlog=1024)
    except socket.gaierror as error:
        raise UsageError(f"The address {host} of this machine is unknown: {error.strerror}.") from error
    except OSError as error:
        raise UsageError(f"No port for the nodes' agents can be opened at {host}:{port}: {error.strerror}.") from error
