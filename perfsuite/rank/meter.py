"""The base class of meters: a meter watches a rank's steps and returns its readings at the end."""

import contextlib
import sys
from collections import Counter
from collections.abc import Iterable, Mapping

from perfsuite.catalog.processes import OF_MODELS
from perfsuite.rank.session import Session
from perfsuite.rank.trainer import StepOutcome, Trainer
from perfsuite.records.sample import Reading
from perfsuite.records.suspects import MOST, fold


def on_dtensors(types: Iterable[type]) -> bool:
    """Whether an operator is on DTensors, with global shape. If a dispatch mode returns NotImplemented there, the
    operators on this rank's parts, and its collectives, are dispatched one by one.
    """
    distributed = sys.modules.get("torch.distributed.tensor")
    return distributed is not None and any(issubclass(kind, distributed.DTensor) for kind in types)


def by_part(calls: Mapping[str, int], most: int | None = MOST) -> Reading:
    """A reading of numbers by "part: operator @ module", of which the ``most`` largest are its evidence."""
    parts: Counter[str] = Counter()
    for call, number in calls.items():
        parts[call.partition(":")[0]] += number
    kept = {part: number for part, number in parts.items() if number}
    return Reading(value=sum(kept.values()), parts=kept, suspects=fold(calls, most))


class Meter:
    """Base of all meters. ``kind`` of a step is

    "compiling" the first step of a cell that compiles, on a GPU: Inductor tries kernels there, with memory of its own
    "traced"   the first steps; memory is recorded, so they are slow
    "warmup"   not recorded
    "timed"    only the clock watches
    "unfenced" a block of steps without a barrier or a synchronization between them: ``step`` is around the whole block,
               ``stepped`` is called for each of its steps after the block
    "called"   one step whose Python calls are counted
    "counted"  one step under dispatch modes that count operators
    "long"     of a long run, at whose blocks' ends all is counted that grows
    "named"    after it: the lines are named at which it grows
    "profiled" one step under torch's profiler, only on CUDA and in launches that are traced

    A script goes on after these for a while, watched by ``later`` alone.
    """

    processes: tuple[str, ...] = OF_MODELS  # the kinds of cells that it watches
    launches: tuple[str, ...] = ("measured",)  # and the kinds of launches; those that are "traced" measure nothing
    watches = ""  # the kind of steps around which ``watching`` is, if it watches only one kind
    alone = False  # made and read when all others are read and their trainer is released; it watches no step
    early = False  # made before the model is, whose every allocation it must see
    inner = 0  # meters with a larger number are entered later: the clock's is the largest

    def __init__(self, session: Session) -> None:
        self.session = session
        self.uncounted: dict[str, str] = {}  # metrics that cannot be counted here, with the reasons
        self.has_grown = False  # whether readings have something that ends, or grows for ever: later steps tell

    def prepared(self, trainer: Trainer) -> None:
        """The engine is ready and checked; no step has run."""
        self.trainer = trainer

    def feed(self, kind: str) -> contextlib.AbstractContextManager[object]:
        """A context around making one step's batch."""
        return contextlib.nullcontext()

    def step(self, kind: str) -> contextlib.AbstractContextManager[object]:
        """A context around one step, or around a block of unfenced ones."""
        return self.watching() if kind == self.watches else contextlib.nullcontext()

    def watching(self) -> contextlib.AbstractContextManager[object]:
        """A context around a step of the kind that it watches."""
        return contextlib.nullcontext()

    def stepped(self, kind: str, outcome: StepOutcome) -> None:
        """A step is done; reading here is outside the clock."""

    def evaluated(self, loss: float) -> None:
        """An epoch and its evaluation are done."""

    def readings(self) -> dict[str, Reading]:
        """All that was measured, by the metric's name. What is missing is in ``uncounted`` from now on."""
        raise NotImplementedError

    def later(self, step: int, outcome: StepOutcome, seconds: float) -> None:
        """That step of a script after all measured ones is done, and 0 is before the first. The readings are made."""

    def later_readings(self, readings: Mapping[str, Reading]) -> dict[str, Reading]:
        """What these steps change of the readings. The script may be in the middle of a step, in another thread."""
        return {}
