"""Where ranks run: on this machine, or one rank server on each of several nodes (``launch/cluster.py``)."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from perfsuite.catalog.cell import Hardware
from perfsuite.catalog.registry import Catalog
from perfsuite.errors import UsageError
from perfsuite.launch.conditions import Conditions
from perfsuite.launch.leases import lease
from perfsuite.launch.machine import describe, device_indices, islands, why_absent
from perfsuite.launch.servers import LocalServer, RankServer, ServerKind
from perfsuite.records.measurement import Machine


class Observer(Protocol):
    """What a place says of its state while a cell runs: ``launch/conditions.py``."""

    def look(self) -> None:
        """Called often."""

    def told(self) -> dict[str, float | str]:
        """What was seen until now."""


class Place(Protocol):
    """What the rest asks of a place."""

    def why_absent(self, hardware: Hardware, catalog: Catalog) -> str:
        """The reason why that hardware is not there; empty if it is."""

    def takes_turns(self, hardware: Hardware) -> bool:
        """Whether two environments can be measured there step by step in turns, as a trial does."""

    def lease(self, hardware: Hardware, catalog: Catalog) -> contextlib.AbstractContextManager[list[int]]:
        """Hold the hardware until the block ends; gives the indices of this machine's accelerators, if they are it."""

    def servers(self, kind: ServerKind, nodes: int) -> list[RankServer]:
        """A rank server on each node. Raises PerfsuiteError."""

    def describe(self, hardware: Hardware, catalog: Catalog, devices: Sequence[int]) -> Machine:
        """The machine as a record."""

    def conditions(self, hardware: Hardware, devices: Sequence[int]) -> Observer:
        """What observes the machine while a cell runs."""

    def close(self) -> None:
        """Give back what is held."""


class ThisMachine:
    """The processes of this machine, on devices that no other cell of this user uses."""

    def why_absent(self, hardware: Hardware, catalog: Catalog) -> str:
        return why_absent(hardware, catalog)

    def takes_turns(self, hardware: Hardware) -> bool:
        return True

    def lease(self, hardware: Hardware, catalog: Catalog) -> contextlib.AbstractContextManager[list[int]]:
        devices = device_indices(hardware, catalog)
        return lease(devices, hardware.ranks, islands(devices))

    def servers(self, kind: ServerKind, nodes: int) -> list[RankServer]:
        return [LocalServer(kind)]

    def describe(self, hardware: Hardware, catalog: Catalog, devices: Sequence[int]) -> Machine:
        return describe(hardware, catalog, devices)

    def conditions(self, hardware: Hardware, devices: Sequence[int]) -> Observer:
        return Conditions(list(devices))

    def close(self) -> None:
        pass


THIS_MACHINE = ThisMachine()


def place_of(launcher: str, root: Path, say: Callable[[str], None]) -> Place:
    """The place that ``--perf-launcher`` names. ``root`` is the folder of pyproject.toml, for SLURM's options, and
    ``say`` gets what is waited for. Raises UsageError.
    """
    from perfsuite.launch.cluster import Cluster
    from perfsuite.launch.slurm import SlurmNodes, slurm_of
    from perfsuite.launch.torchrun import LISTENER, TorchrunNodes

    has_srun = shutil.which("srun") is not None
    options = slurm_of(root)

    def speaking(cluster: Cluster) -> Place:
        cluster.say = say
        return cluster

    if launcher == "slurm":
        if not has_srun:
            raise UsageError("--perf-launcher=slurm needs SLURM's srun, which is not installed here.")
        return speaking(SlurmNodes(options))
    if launcher == "torchrun":
        return speaking(TorchrunNodes())
    if launcher == "local":
        return THIS_MACHINE
    if LISTENER in os.environ:
        return ByNodes(lambda: speaking(TorchrunNodes()))
    return ByNodes(lambda: speaking(SlurmNodes(options))) if has_srun else THIS_MACHINE


class ByNodes:
    """This machine for cells of one node; nodes of a cluster, made when the first cell needs them, for others."""

    def __init__(self, several: Callable[[], Place]) -> None:
        self._make = several
        self._several: Place | None = None

    def _for(self, nodes: int) -> Place:
        if nodes == 1:
            return THIS_MACHINE
        self._several = self._several or self._make()
        return self._several

    def why_absent(self, hardware: Hardware, catalog: Catalog) -> str:
        return self._for(hardware.nodes).why_absent(hardware, catalog)

    def takes_turns(self, hardware: Hardware) -> bool:
        return hardware.nodes == 1

    def lease(self, hardware: Hardware, catalog: Catalog) -> contextlib.AbstractContextManager[list[int]]:
        return self._for(hardware.nodes).lease(hardware, catalog)

    def servers(self, kind: ServerKind, nodes: int) -> list[RankServer]:
        return self._for(nodes).servers(kind, nodes)

    def describe(self, hardware: Hardware, catalog: Catalog, devices: Sequence[int]) -> Machine:
        return self._for(hardware.nodes).describe(hardware, catalog, devices)

    def conditions(self, hardware: Hardware, devices: Sequence[int]) -> Observer:
        return self._for(hardware.nodes).conditions(hardware, devices)

    def close(self) -> None:
        if self._several:
            self._several.close()
            self._several = None
