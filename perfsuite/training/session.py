"""What a rank knows: its job, its place, its catalog, its device, and whom to tell about its progress."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from perfsuite.catalog.registry import Catalog
from perfsuite.catalog.strategies import Strategy, parse_strategy
from perfsuite.records import Job
from perfsuite.training.recipe import Recipe, resolve

if TYPE_CHECKING:
    import torch

Listener = Callable[[str], None]


@dataclass
class Session:
    """One rank of one cell."""

    job: Job
    rank: int
    catalog: Catalog
    strategy: Strategy
    recipe: Recipe
    listeners: list[Listener] = field(default_factory=list)

    @classmethod
    def open(cls, job: Job, rank: int) -> Session:
        """Load the catalog that the parent used and resolve the strategy with it."""
        for entry in job.import_path:
            if entry not in sys.path:
                sys.path.append(entry)
        catalog = Catalog(tuple(Path(folder) for folder in job.catalogs))
        strategy = parse_strategy(job.strategy, catalog)
        return cls(job, rank, catalog, strategy, resolve(strategy))

    @property
    def world_size(self) -> int:
        return self.job.world_size

    @property
    def device(self) -> torch.device:
        import torch

        return torch.device("cpu") if self.job.device == "cpu" else torch.device("cuda", torch.cuda.current_device())

    @property
    def compute_dtype(self) -> torch.dtype:
        """The dtype of the matmuls."""
        import torch

        dtype = getattr(torch, self.recipe.compute_dtype)
        assert isinstance(dtype, torch.dtype)
        return dtype

    def mark(self, phase: str) -> None:
        """Tell everyone who listens that a phase begins: "batch", "forward", "backward", "optimizer" or "end"."""
        for listener in self.listeners:
            listener(phase)

    def synchronize(self) -> None:
        """Wait until the device has done all that was asked of it."""
        if self.job.device == "cuda":
            import torch

            torch.cuda.synchronize()
