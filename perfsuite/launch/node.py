"""The parent's ends of a node's agent (``launch/agent.py``): the connection, the node's rank server, its conditions."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from perfsuite.errors import UsageError
from perfsuite.launch.servers import END_SECONDS, NOT_READY, POLL_SECONDS
from perfsuite.rank.process_group import RENDEZVOUS
from perfsuite.records import codec
from perfsuite.records.job import JOB
from perfsuite.records.measurement import Machine
from perfsuite.records.wire_lines import Gone, Lines, pack, unpack
from perfsuite.system.units import show_bytes, show_rate
from perfsuite.system.workspaces import Workspace

ANSWER_SECONDS = 60.0  # to import a catalog and ask a driver
_FILE = re.compile(r"\w[\w.]*")  # a name alone, and no folder
LOOK_SECONDS = 3.0  # how often the scheduler is asked


class NodeAgent:
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

    def ask(self, question: Mapping[str, Any], why_lost: WhyLost) -> dict[str, Any]:
        """Raises UsageError."""
        self.tell(question)
        try:
            return self.lines.first(ANSWER_SECONDS)
        except Gone as error:
            self.lost = str(error)
            raise UsageError(f"Node {self.name}: {why_lost(self) or error}.") from error

    def leave(self) -> None:
        """Goodbye: its servers are dead from now on."""
        self.tell({"bye": True})
        self.lost = self.lost or "it was given back"
        self.lines.close()


WhyLost = Callable[[NodeAgent], str]  # as its scheduler knows it


class NodeServer:
    """A rank server on another node, through its agent."""

    starts_command = False

    def __init__(self, agent: NodeAgent, why_lost: WhyLost, trouble: Callable[[], str]) -> None:
        self.node = agent.name
        self._held = Workspace("node")
        self.workspace = self._held.folder
        self._agent, self._why_lost, self._trouble = agent, why_lost, trouble
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

    def start(self, folder: Path, ranks: list[int]) -> None:
        self._folder = folder
        self._has_rendezvous = False
        self._heard.clear()
        self._agent.tell({"start": ranks, "job": (folder / JOB).read_text()})

    def receive(self, seconds: float) -> list[dict[str, Any]]:
        self._listen(0 if self._heard else seconds)
        heard, self._heard = self._heard, []
        if heard:
            return heard
        if self._agent.lost:
            time.sleep(POLL_SECONDS)
            if reason := self._why_lost(self._agent):
                return [{"error": reason, "explained": True}]
            return [{"error": f"its agent is gone: {self._agent.lost}."}]
        if time.monotonic() - self._looked > LOOK_SECONDS:
            self._looked = time.monotonic()
            if trouble := self._trouble():
                return [{"error": trouble, "explained": True}]
        return []

    def _listen(self, seconds: float) -> None:
        """Write files into the cell's folder; keep what else was said."""
        try:
            for message in self._agent.hear(seconds):
                self._take(message)
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError, Gone) as error:
            self._agent.lost = f"it said what no agent says: {error!r}"

    def _take(self, message: dict[str, Any]) -> None:
        if "file" in message:
            self._write(message)
        elif "gone" in message:
            self._agent.conditions = dict(message["gone"])
            self._folder = None
        else:
            self._tail = str(message.get("tail", self._tail))
            self._heard.append(message)

    def _write(self, message: Mapping[str, Any]) -> None:
        if self._folder is None or not self._folder.is_dir():
            return
        name, data = message["file"], unpack(message["data"])
        if not _FILE.fullmatch(name):
            raise ValueError(f"{name!r} is no file of a rank")
        path = self._folder / name
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

    def why_not_ready(self) -> str:
        return NOT_READY

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
        self._held.close()


class ClusterConditions:
    """The conditions of every node, as the agents told them at the end of a cell, and how the nodes differ."""

    def __init__(self, agents: Sequence[NodeAgent], differ: str = "") -> None:
        self._agents = agents
        self._differ = differ

    def look(self) -> None:
        """The agents look."""

    def summary(self) -> dict[str, float | str]:
        conditions = {
            f"{agent.name} {name}": value for agent in self._agents for name, value in agent.conditions.items()
        }
        return conditions | ({"nodes differ": self._differ} if self._differ else {})


def differences(names: Sequence[str], machines: Sequence[Machine]) -> str:
    """What one node may be slower by: ``driver: a 580.82, b 570.1; networks: a none, b mlx5_0:1 50.0 GB/s``; empty if
    all nodes are alike.
    """
    facts: dict[str, Callable[[Machine], str]] = {
        "cores": lambda machine: str(machine.cores),
        "memory": lambda machine: show_bytes(machine.memory_bytes),
        "driver": lambda machine: machine.driver,
        "networks": lambda machine: " ".join(f"{name} {show_rate(rate)}" for name, rate in machine.networks.items()),
    }
    differing = []
    for fact, of in facts.items():
        values = [of(machine) or "none" for machine in machines]
        if len(set(values)) > 1:
            by_node = (f"{name} {value}" for name, value in zip(names, values, strict=False))
            differing.append(f"{fact}: {', '.join(by_node)}")
    return "; ".join(differing)
