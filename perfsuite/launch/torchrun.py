"""Nodes that somebody else starts: torchrun, Kubernetes' PyTorchJob, mpirun with torch's variables.

The same command runs on every node, ``perfsuite node -- pytest --perf``. On the first node it runs pytest, to which
the agents of all nodes connect; on the others it is the agent alone.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass

from perfsuite.catalog.cell import Hardware
from perfsuite.catalog.registry import Catalog
from perfsuite.errors import UsageError
from perfsuite.launch.agent import START_SECONDS
from perfsuite.launch.cluster import Cluster
from perfsuite.launch.handshake import take_secret

LISTENER = "PERFSUITE_LISTENER"  # the number of the inherited socket
NODES = "PERFSUITE_NODES"
_OWN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_OWN_PREFIXES = ("LOCAL_", "GROUP_", "ROLE_", "TORCHELASTIC_")
_DEFAULT = ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")  # unless the user has set it


@dataclass(frozen=True)
class RankGroup:
    """This node among those of torchrun: torch.distributed's ``env://`` variables."""

    number: int
    nodes: int
    address: str
    port: int
    first_on_node: bool

    @classmethod
    def of(cls, variables: Mapping[str, str]) -> RankGroup:
        """Raises UsageError for a variable that is missing or no number."""
        try:
            local = int(variables.get("LOCAL_RANK") or variables.get("OMPI_COMM_WORLD_LOCAL_RANK") or 0)
            each = int(variables.get("LOCAL_WORLD_SIZE") or variables.get("OMPI_COMM_WORLD_LOCAL_SIZE") or 1)
            mpi = "OMPI_COMM_WORLD_" if "RANK" not in variables and "OMPI_COMM_WORLD_RANK" in variables else ""
            rank, size = int(variables[f"{mpi}RANK"]), int(variables[f"{mpi}WORLD_SIZE" if not mpi else f"{mpi}SIZE"])
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


def forget(variables: MutableMapping[str, str]) -> None:
    """Remove what torchrun sets: it differs from run to run, and a rank has the same environment without torchrun.

    Source: torch/distributed/elastic/agent/server/local_elastic_agent.py (_start_workers).
    """
    for name in list(variables):
        if name in _OWN or name.startswith(_OWN_PREFIXES) or (name, variables[name]) == _DEFAULT:
            del variables[name]


class TorchrunNodes(Cluster):
    """The nodes that connect; there are never others."""

    def __init__(self) -> None:
        try:
            listener = socket.socket(fileno=int(os.environ[LISTENER]))
            self._count = int(os.environ[NODES])
        except (KeyError, ValueError, OSError) as error:
            raise UsageError("perf_launcher=torchrun needs `perfsuite node -- pytest …` on every node.") from error
        self._over = False
        super().__init__(listener, take_secret(os.environ))

    def why_absent(self, hardware: Hardware, catalog: Catalog) -> str:
        few = hardware.nodes > self._count
        return f"{hardware.name} needs {hardware.nodes} nodes, but torchrun started {self._count}." if few else ""

    def fits(self, hardware: Hardware) -> bool:
        """All nodes connect once, so they fit until one of them is lost."""
        return not self._over

    def expected(self, hardware: Hardware) -> int:
        return self._count

    def why_too_late(self) -> str:
        self._over = True  # nobody waits for them again
        return ""

    def start(self, hardware: Hardware) -> None:
        """Called after a loss. Raises UsageError."""
        self._over = True
        raise UsageError("A node is gone, and torchrun starts no other for this run: start it again on all nodes.")

    def wait_seconds(self) -> float:
        return START_SECONDS
