"""A rank's context: its job, its place, its catalog, its device, and the listeners to its progress."""

import contextlib
import functools
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from perfsuite.catalog.definitions import Layout
from perfsuite.catalog.layouts import lay_out
from perfsuite.catalog.registry import Catalog
from perfsuite.catalog.strategies import Strategy, parse_strategy
from perfsuite.rank.asked import AskedInputs, watch
from perfsuite.rank.memory.source import MemoryRecord
from perfsuite.rank.opened import Opened
from perfsuite.rank.recipe import Recipe, recipe_of
from perfsuite.rank.torch_types import DeviceMesh, DType, TorchDevice
from perfsuite.records.job import Job
from perfsuite.system.machine import EMULATED

if TYPE_CHECKING:
    from typing import Self

Listener = Callable[[str], None]


@dataclass
class Session:
    """One rank of one cell."""

    job: Job
    rank: int
    catalog: Catalog
    strategy: Strategy
    recipe: Recipe
    layout: Layout
    scratch: Path | None = None  # for files that are removed when the cell ends
    listeners: list[Listener] = field(default_factory=list)
    waits: Listener = lambda phase: None  # called from time to time while this rank waits, and does not hang
    parameters: int = 0  # of the model as it was built, tied ones counted once
    memory: MemoryRecord | None = None  # of the traced steps: meters/memory.py
    phase: str = ""  # that a script names itself: it has the time, whatever runs in it
    part: str = ""  # that a script names itself: it has the memory and the operators
    runtime_calls: Counter[tuple[str, str, str, str]] | None = None  # meters/_cuda_runtime.py
    # What meters changed in this process, taken back when the steps have ended, however they do.
    undone: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    left: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)  # how this process leaves the others
    opened: Opened = field(default_factory=Opened)  # files, until the steps begin
    asked: AskedInputs = field(default_factory=watch)  # variables
    called: frozenset[str] = frozenset()  # modules of which a step has called functions

    @classmethod
    def open(cls, job: Job, rank: int, scratch: Path | None = None) -> "Self":
        """Load the catalog that the parent used and resolve the strategy with it."""
        for entry in job.import_path:
            if entry not in sys.path:
                sys.path.append(entry)
        opened, asked = Opened(), watch()
        with opened.watching():  # definition files of the user's may read others
            catalog = Catalog(tuple(Path(folder) for folder in job.catalogs))
            strategy = parse_strategy(job.strategy, catalog)
        layout = lay_out(strategy, job.world_size * job.devices)
        return cls(job, rank, catalog, strategy, recipe_of(strategy), layout, scratch, opened=opened, asked=asked)

    @property
    def world_size(self) -> int:
        return self.job.world_size

    @property
    def data_rank(self) -> int:
        """Which of the ``layout.data_ranks`` shares of the global batch this rank gets."""
        return self.rank // self.layout.shared_by % self.layout.data_ranks

    @property
    def leads_replica(self) -> bool:
        """Whether this rank is the first of those with the same data: it counts for all of them."""
        return self.rank % self.layout.shared_by == 0 and self.stage == 0

    @property
    def stage(self) -> int:
        """This rank's pipeline stage."""
        return self.rank // self.layout.stage_ranks

    @functools.cached_property
    def mesh(self) -> DeviceMesh:
        """All ranks with named dimensions; its dimensions of width 1 cost nothing."""
        from torch.distributed.device_mesh import init_device_mesh

        widths = self.layout.of_ranks
        return init_device_mesh(self.job.device, tuple(widths.values()), mesh_dim_names=tuple(widths))

    @property
    def device(self) -> TorchDevice:
        import torch

        return torch.device("cpu") if self.job.device == "cpu" else torch.device("cuda", torch.cuda.current_device())

    @property
    def devices(self) -> list[TorchDevice]:
        """All of this rank's, beginning with ``device``."""
        import torch

        first = self.device
        return [first, *(torch.device(first.type, first.index + number) for number in range(1, self.layout.devices))]

    @property
    def emulated(self) -> bool:
        """Whether this rank's GPU is emulated: most of its kernels compute nothing."""
        import torch

        return self.job.device == "cuda" and torch.cuda.get_device_name().startswith(EMULATED)

    @property
    def compute_dtype(self) -> DType:
        """The dtype of the matmuls."""
        import torch

        dtype = getattr(torch, self.recipe.compute_dtype)
        assert isinstance(dtype, torch.dtype)
        return dtype

    @property
    def compiles(self) -> bool:
        """Whether the first step compiles the model."""
        choices = self.strategy.choices
        return any(choice.technique.slot == "compilation" and not choice.technique.default for choice in choices)

    @property
    def packages(self) -> tuple[str, ...]:
        """The distributions that the strategy and the model name, and torch."""
        return ("torch", *self.strategy.packages, *self.job.model.packages)

    def mark(self, phase: str) -> None:
        """Notify all listeners that a phase begins: "batch" (of the step that compiles, "compile"), "forward",
        "backward", "optimizer" or "end".
        """
        for listener in self.listeners:
            listener(phase)

    def within(self, module: str) -> str:
        """A module's path in the part that the script names: ``reward model.h.0.mlp``."""
        return ".".join(filter(None, (self.part, module)))

    def outside(self, phase: str) -> str:
        """What operators outside of all modules belong to: the part, or the phase in brackets."""
        return self.part or f"({self.phase or phase})"

    def synchronize(self) -> None:
        """Wait until each device has finished all of its work."""
        if self.job.device == "cuda":
            import torch

            for device in self.devices:
                torch.cuda.synchronize(device)
