"""What a rank knows, and what serves its code: the facts of its cell, and the services that each own some state."""

import contextlib
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from perfsuite.catalog.definitions import Layout
from perfsuite.catalog.layouts import lay_out
from perfsuite.catalog.registry import Catalog
from perfsuite.catalog.strategies import Strategy, parse_strategy
from perfsuite.rank.asked import AskedInputs, watch
from perfsuite.rank.garbage import Garbage
from perfsuite.rank.opened import Opened
from perfsuite.rank.phases import StepPhases
from perfsuite.rank.recipe import Recipe, recipe_of
from perfsuite.rank.torch_types import DeviceMesh, DType, TorchDevice
from perfsuite.records.job import Job
from perfsuite.system.machine import EMULATED

if TYPE_CHECKING:
    from typing import Self

    from perfsuite.rank.memory.recorder import MemoryRecorder


@dataclass(frozen=True)
class RankFacts:
    """One rank of one cell. ``scratch`` is a folder for files that are removed when the cell ends."""

    job: Job
    rank: int
    catalog: Catalog
    strategy: Strategy
    recipe: Recipe
    layout: Layout
    scratch: Path | None

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

    def synchronize(self) -> None:
        """Wait until each device has finished all of its work."""
        if self.job.device == "cuda":
            import torch

            for device in self.devices:
                torch.cuda.synchronize(device)


class RankMesh:
    """All ranks with named dimensions, made once; its dimensions of width 1 cost nothing."""

    def __init__(self) -> None:
        self._mesh: DeviceMesh | None = None

    def of(self, facts: RankFacts) -> DeviceMesh:
        """The mesh of these facts. Collective the first time."""
        from torch.distributed.device_mesh import init_device_mesh

        if self._mesh is None:
            widths = facts.layout.of_ranks
            self._mesh = init_device_mesh(facts.job.device, tuple(widths.values()), mesh_dim_names=tuple(widths))
        return self._mesh


@dataclass(frozen=True)
class Session(RankFacts):
    """The facts of a rank with its services. Each service is made once, here or with the field that has it."""

    opened_files: Opened = field(default_factory=Opened)  # until the steps begin
    asked_variables: AskedInputs = field(default_factory=watch)
    phases: StepPhases = field(default_factory=StepPhases)
    meshes: RankMesh = field(default_factory=RankMesh)
    garbage: Garbage = field(default_factory=Garbage)
    memory: "MemoryRecorder | None" = None  # of the first steps; None: it is not recorded
    # Closed when the steps have ended, however they do: takes back what meters have changed in this process.
    changes: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    # Closed when this process leaves the others.
    departure: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

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
        return cls(job, rank, catalog, strategy, recipe_of(strategy), layout, scratch, opened, asked)

    @property
    def mesh(self) -> DeviceMesh:
        """All ranks with named dimensions. Collective the first time."""
        return self.meshes.of(self)

    @property
    def mark(self) -> Callable[[str], None]:
        """Called with each phase as it begins: ``StepPhases.mark``."""
        return self.phases.mark
