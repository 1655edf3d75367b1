"""Objects: how many Python objects a step leaves alive for ever. A leak of small objects is in no peak of memory.

Counted before and after the unfenced steps but those of the first block, in which caches are filled, once all cycles
are collected: what Python's garbage collector tracks, containers and instances, but for the modules' own, which the
rank server has frozen. A leak grows with the steps of a whole training, and so does the time of every collection.
"""

from __future__ import annotations

import contextlib
import gc
from typing import TYPE_CHECKING

from perfsuite.catalog.definitions import Metric
from perfsuite.rank.meter import Meter
from perfsuite.rank.trainer import StepOutcome
from perfsuite.records.suspects import fold
from perfsuite.units import show_whole
from perfsuite.wire.sample import Reading

if TYPE_CHECKING:
    from perfsuite.rank.session import Session


class Objects(Meter):
    """Counts outside of all steps, after the timed ones."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.before: dict[str, int] | None = None
        self.after: dict[str, int] | None = None
        self.steps = 0

    def feed(self, kind: str) -> contextlib.AbstractContextManager[object]:
        if kind == "unfenced" and self.before is None and self.steps:
            self.before, self.steps = count(), 0
        elif kind == "called" and self.before is not None:
            self.after = count()
        return contextlib.nullcontext()

    def stepped(self, kind: str, outcome: StepOutcome) -> None:
        self.steps += kind == "unfenced"

    def readings(self) -> dict[str, Reading]:
        if self.before is None or self.after is None:  # of a cell with a capacity or one step, which has no two blocks
            return {}
        left = {name: (self.after[name] - self.before.get(name, 0)) // self.steps for name in self.after}
        left = {name: number for name, number in left.items() if number > 0}
        parts: dict[str, int] = {}
        for name, number in left.items():
            package = name.partition(".")[0]
            parts[package] = parts.get(package, 0) + number
        suspects = {f"{name.partition('.')[0]}: {name}": number for name, number in left.items()}
        return {"leaked_objects": Reading(value=sum(parts.values()), parts=parts, suspects=fold(suspects))}


def count() -> dict[str, int]:
    """The live objects by their type, as ``package.module.Type``. It leaves none itself: a Counter would ask whether
    what it is given is a Mapping, and every Mapping would remember the answer.
    """
    gc.collect()
    kinds: dict[type, int] = {}
    for one in gc.get_objects():
        kinds[type(one)] = kinds.get(type(one), 0) + 1
    named: dict[str, int] = {}
    for kind, number in kinds.items():
        name = f"{kind.__module__}.{kind.__qualname__}"
        named[name] = named.get(name, 0) + number
    return named


METER = Objects
METRICS = (
    Metric(
        name="leaked_objects",
        title="objects left/step",
        show=show_whole,
        hold="exact",
        optional=True,  # baselines from before they were counted lack them
        depends_on=("python",),
    ),
)
