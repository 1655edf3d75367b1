"""Nodes that somebody else starts: torchrun, Kubernetes' PyTorchJob, mpirun with torch's variables.

The same command runs on every node, ``perfsuite node -- pytest --perf``. On the first node it runs pytest, to which
the agents of all nodes connect; on the others it is the agent alone.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from perfsuite.catalog.registry import Catalog
from perfsuite.cell import Hardware
from perfsuite.errors import UsageError
from perfsuite.launch.agent import START_SECONDS, TOKEN
from perfsuite.launch.cluster import Cluster

LISTENER = "PERFSUITE_LISTENER"  # the number of the inherited socket
NODES = "PERFSUITE_NODES"


@dataclass(frozen=True)
class Group:
    """This node among those of torchrun: torch.distributed's ``env://`` variables."""

    number: int
    nodes: int
    address: str
    port: int
    first_on_node: bool

    @classmethod
    def of(cls, variables: Mapping[str, str]) -> Group:
        """Raises UsageError for a variable that is missing or no number."""
        try:
            local = int(variables.get("LOCAL_RANK") or variables.get("OMPI_COMM_WORLD_LOCAL_RANK") or 0)
            each = int(variables.get("LOCAL_WORLD_SIZE") or variables.get("OMPI_COMM_WORLD_LOCAL_SIZE") or 1)
            rank = int(variables.get("RANK") or variables["OMPI_COMM_WORLD_RANK"])
            size = int(variables.get("WORLD_SIZE") or variables["OMPI_COMM_WORLD_SIZE"])
            return cls(rank // each, size // each, variables["MASTER_ADDR"], int(variables["MASTER_PORT"]), local == 0)
        except (KeyError, ValueError) as error:
            raise UsageError(
                "perfsuite node needs RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as torchrun sets them, but "
                f"{error} is missing or no number. With torchrun: torchrun --nnodes=2 --no-python … perfsuite node -- …"
            ) from error

    @property
    def meeting(self) -> int:
        """The port at which the first node waits for agents: the one above that of torchrun."""
        return int(os.environ.get("PERFSUITE_PORT") or self.port + 1)


class TorchrunNodes(Cluster):
    """The nodes that connect; there are never others."""

    def __init__(self) -> None:
        try:
            listener = socket.socket(fileno=int(os.environ[LISTENER]))
            self._count = int(os.environ[NODES])
        except (KeyError, ValueError, OSError) as error:
            raise UsageError("--perf-launcher=torchrun needs `perfsuite node -- pytest …` on every node.") from error
        self._over = False
        super().__init__(listener, os.environ[TOKEN])

    def why_absent(self, hardware: Hardware, catalog: Catalog) -> str:
        few = hardware.nodes > self._count
        return f"{hardware.name} needs {hardware.nodes} nodes, but torchrun started {self._count}." if few else ""

    def fits(self, hardware: Hardware) -> bool:
        """All nodes connect once, so they fit until one of them is lost."""
        return not self._over

    def expected(self, hardware: Hardware) -> int:
        return self._count

    def start(self, hardware: Hardware) -> None:
        """Called after a loss. Raises UsageError."""
        self._over = True
        raise UsageError("A node is gone, and torchrun starts no other for this run: start it again on all nodes.")

    def wait_seconds(self) -> float:
        return START_SECONDS
