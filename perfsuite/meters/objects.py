"""Objects: how many Python objects a step leaves alive for ever. A leak of small objects is in no peak of memory.

Counted between the first unfenced blocks, once all cycles are collected: what Python's garbage collector tracks,
containers and instances, but for the modules' own, which the rank server has frozen. A leak grows in every block, so
the block in which a type grew least is what counts: what is made once, such as a cache, is in one block alone. A leak
grows with the steps of a whole training, and so does the time of every collection.
"""

import contextlib
import gc
import itertools

from perfsuite.catalog.definitions import Metric
from perfsuite.catalog.processes import OF_STEPS
from perfsuite.rank.meter import Meter, by_part
from perfsuite.rank.session import Session
from perfsuite.rank.trainer import StepOutcome
from perfsuite.records.sample import Reading
from perfsuite.units import WHOLE

FEWEST, MOST = 2, 4  # blocks between counts; to count takes some milliseconds, and disturbs the block after it


class Objects(Meter):
    """Counts outside of all steps, after the timed ones. The first block fills caches, and is left out."""

    processes = OF_STEPS

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.counts: list[dict[str, int]] = []
        self.between: list[int] = []  # steps before each count, since the one before it
        self.steps = 0  # since the last count

    def feed(self, kind: str) -> contextlib.AbstractContextManager[object]:
        if kind in ("unfenced", "called") and self.steps and len(self.counts) <= MOST:
            self.counts.append(count())
            self.between.append(self.steps)
            self.steps = 0
        return contextlib.nullcontext()

    def stepped(self, kind: str, outcome: StepOutcome) -> None:
        self.steps += kind == "unfenced"

    def readings(self) -> dict[str, Reading]:
        blocks = list(zip(itertools.pairwise(self.counts), self.between[1:], strict=True))
        if len(blocks) < FEWEST:  # of a cell with a capacity, or with too few steps
            return {}
        left: dict[str, int] = {}
        for name in self.counts[-1]:
            number = min((after.get(name, 0) - before.get(name, 0)) // steps for (before, after), steps in blocks)
            if number > 0:
                left[f"{name.partition('.')[0]}: {name}"] = number
        return {"leaked_objects": by_part(left)}


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
METRICS = (Metric("leaked_objects", "objects left/step", WHOLE, hold="exact", optional=True, depends_on=("python",)),)
