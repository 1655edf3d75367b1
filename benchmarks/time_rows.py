"""A measured step time that somebody published, as a row that the closed form can be asked about."""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from perfsuite.catalog.registry import Catalog
from perfsuite.features.predict.plan.planned import Planned
from perfsuite.features.predict.plan.question import PlanQuestion, StepWish, question
from perfsuite.features.predict.time.constants import machine_of
from perfsuite.features.predict.time.setup import MachineSetup, Setup
from perfsuite.features.predict.time.shape import Shape

CATALOG = Catalog(())


@dataclass(frozen=True, kw_only=True)
class Row:
    """One measured step, asked as ``perfsuite plan`` asks it.

    ``stack`` is the software that made it, ``layout`` its layout in the planner's words, ``options`` those of ``--set``
    and ``network`` a device's bytes per second. ``batch`` are the samples of a step.
    """

    table: str
    label: str
    device: str
    stack: str
    shape: Shape
    layout: str
    sequence: int
    batch: int
    network: float
    seconds: float
    target: int = 0
    node: int = 8
    precision: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    group: str = ""  # rows of one question: the best layout is sought in each
    family: str = ""  # rows of one model: none of them is fitted when it is judged
    release: str = ""  # of the software's recipes
    throttled: bool = False  # the devices have a lower power limit than usual, or one that is not stated

    @cached_property
    def question(self) -> PlanQuestion:
        """What ``perfsuite plan`` would be asked."""
        device = CATALOG.get("device", self.device)
        model = Planned(name=self.label, shape=self.shape, sequence=self.sequence, target=self.target)
        wish = StepWish(samples=self.batch, stack=self.stack, precision=self.precision, options=self.options)
        return question(model, device, machine_of(device, self.network, self.node), ranks=0, wish=wish)

    @cached_property
    def setup(self) -> Setup:
        """The layout, as the planner makes it of its words."""
        return self.question.setup(self.layout)

    def machine(self) -> MachineSetup:
        """The devices that it ran on."""
        return self.question.machine

    @property
    def model_flops(self) -> float:
        """Model FLOPs of the step."""
        return self.shape.model_flops(self.sequence, self.target) * self.batch


def lines(path: Path) -> Iterator[dict[str, str]]:
    """The lines of a table below its comments."""
    with path.open() as file:
        yield from csv.DictReader(line for line in file if not line.startswith("#"))
