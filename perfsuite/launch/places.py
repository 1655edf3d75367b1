"""Where ranks run: on this machine, or one rank server on each of several nodes (``launch/cluster.py``)."""

import contextlib
import os
import shutil
from collections.abc import Callable, Sequence
from typing import Protocol

from perfsuite.catalog.cell import Hardware
from perfsuite.catalog.project import Slurm
from perfsuite.catalog.registry import Catalog
from perfsuite.errors import UsageError
from perfsuite.launch.hardware_here import describe, device_indices, why_absent
from perfsuite.launch.leases import lease
from perfsuite.launch.scripts import ScriptServer
from perfsuite.launch.servers import LocalServer, RankServer, ServerKind
from perfsuite.records.measurement import Machine
from perfsuite.system.conditions import Conditions
from perfsuite.system.machine import islands


class Observer(Protocol):
    """What a place says of its state while a cell runs: ``system/conditions.py``."""

    def look(self) -> None:
        """Called often."""

    def summary(self) -> dict[str, float | str]:
        """What was seen until now."""


class Places(Protocol):
    """Where the cells of a run are measured: a place, or several."""

    def at(self, nodes: int) -> "Place":
        """The place of cells with so many nodes."""

    def close(self) -> None:
        """Give back what is held."""


class Place(Places, Protocol):
    """What the rest asks of a place. ``takes_turns`` says whether two environments can be measured there step by step
    in turns, as a trial does.
    """

    takes_turns: bool

    def why_absent(self, hardware: Hardware, catalog: Catalog) -> str:
        """The reason why that hardware is not there; empty if it is."""

    def lease(self, hardware: Hardware, catalog: Catalog) -> contextlib.AbstractContextManager[list[int]]:
        """Hold the hardware until the block ends; gives the indices of this machine's accelerators, if they are it."""

    def servers(self, kind: ServerKind, nodes: int) -> list[RankServer]:
        """A rank server on each node. Raises PerfsuiteError."""

    def describe(self, hardware: Hardware, catalog: Catalog, devices: Sequence[int]) -> Machine:
        """The machine as a record."""

    def conditions(self, hardware: Hardware, devices: Sequence[int]) -> Observer:
        """What observes the machine while a cell runs."""


class ThisMachine:
    """The processes of this machine, on devices that no other cell of this user uses."""

    takes_turns = True
    why_absent = staticmethod(why_absent)
    describe = staticmethod(describe)

    def at(self, nodes: int) -> "Place":
        return self

    def lease(self, hardware: Hardware, catalog: Catalog) -> contextlib.AbstractContextManager[list[int]]:
        devices = device_indices(hardware, catalog)
        return lease(devices, hardware.ranks, islands(devices))

    def servers(self, kind: ServerKind, nodes: int) -> list[RankServer]:
        return [ScriptServer(kind) if kind.script else LocalServer(kind)]

    def conditions(self, hardware: Hardware, devices: Sequence[int]) -> Observer:
        return Conditions(list(devices))

    def close(self) -> None:
        pass


THIS_MACHINE = ThisMachine()


def place_of(launcher: str, options: Slurm, say: Callable[[str], None]) -> Places:
    """The place that ``perf_launcher`` names. ``options`` are SLURM's, and ``say`` gets what is waited for. Raises
    UsageError.
    """
    from perfsuite.launch.cluster import Cluster
    from perfsuite.launch.slurm import SlurmNodes
    from perfsuite.launch.torchrun import LISTENER, TorchrunNodes

    has_srun = shutil.which("srun") is not None

    def speaking(cluster: Cluster) -> Place:
        cluster.say = say
        return cluster

    if launcher == "slurm":
        if not has_srun:
            raise UsageError("perf_launcher=slurm needs SLURM's srun, which is not installed here.")
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

    def __init__(self, make: Callable[[], Place]) -> None:
        self._make = make
        self._several: Place | None = None

    def at(self, nodes: int) -> "Place":
        if nodes == 1:
            return THIS_MACHINE
        self._several = self._several or self._make()
        return self._several

    def close(self) -> None:
        if self._several:
            self._several.close()
            self._several = None
