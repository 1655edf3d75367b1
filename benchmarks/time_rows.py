"""A measured step time that somebody published, as a row that the closed form can be asked about."""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from perfsuite.catalog.registry import Catalog
from perfsuite.predict.time.constants import machine_of
from perfsuite.predict.time.setup import Machine, Setup
from perfsuite.predict.time.shape import Shape

CATALOG = Catalog(())


@dataclass(frozen=True, kw_only=True)
class Row:
    """One measured step. ``stack`` is the software that made it."""

    table: str
    label: str
    device: str
    stack: str
    shape: Shape
    setup: Setup
    network: float
    seconds: float
    group: str = ""  # rows of one question: the best layout is sought in each

    def machine(self) -> Machine:
        """The devices that it ran on."""
        return machine_of(CATALOG.get("device", self.device), self.network)

    @property
    def model_flops(self) -> float:
        """Model FLOPs of the step."""
        return self.shape.model_flops(self.setup.sequence, self.setup.target) * self.setup.samples


def lines(path: Path) -> Iterator[dict[str, str]]:
    """The lines of a table below its comments."""
    with path.open() as file:
        yield from csv.DictReader(line for line in file if not line.startswith("#"))
