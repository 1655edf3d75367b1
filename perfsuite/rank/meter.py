"""The base class of meters: a meter watches a rank's steps and returns its readings at the end."""

import contextlib
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum, auto

from perfsuite.catalog.processes import OF_MODELS
from perfsuite.rank.session import Session
from perfsuite.rank.trainer import StepOutcome, Trainer
from perfsuite.records.sample import Reading
from perfsuite.records.step_kinds import StepKind
from perfsuite.records.suspects import MOST, fold, fold_lines


def on_dtensors(types: Iterable[type]) -> bool:
    """Whether an operator is on DTensors, with global shape. If a dispatch mode returns NotImplemented there, the
    operators on this rank's parts, and its collectives, are dispatched one by one.
    """
    distributed = sys.modules.get("torch.distributed.tensor")
    return distributed is not None and any(issubclass(kind, distributed.DTensor) for kind in types)


Lines = Mapping[str, Counter[str]]  # the numbers of the user's lines, by "part: operator @ module"


def by_part(calls: Mapping[str, int], most: int | None = MOST, lines: Lines | None = None) -> Reading:
    """A reading of numbers by "part: operator @ module", of which the ``most`` largest are its evidence."""
    parts: Counter[str] = Counter()
    for call, number in calls.items():
        parts[call.partition(":")[0]] += number
    kept = {part: number for part, number in parts.items() if number}
    suspects = fold(calls, most)
    return Reading(value=sum(kept.values()), parts=kept, suspects=suspects, lines=fold_lines(lines or {}, suspects))


class Order(IntEnum):
    """Where a meter stands around a step: those that come later are entered later, so they are nearer to it."""

    WHOLE = auto()  # the other meters' share of a step counts too
    PHASES = auto()
    PATCHES = auto()  # of functions that others watch
    USUAL = auto()
    MEMORY = auto()  # it waits before a recorded step
    TIMELINE = auto()
    AROUND_CLOCK = auto()
    CLOCK = auto()
    WITHIN_CLOCK = auto()


class Meter:
    """Base of all meters. ``step`` is around a whole block of unfenced steps, ``stepped`` is called for each of them
    after the block.
    """

    processes: tuple[str, ...] = OF_MODELS  # the kinds of cells that it watches
    launches: tuple[str, ...] = ("measured",)  # and the kinds of launches; those that are "traced" measure nothing
    watches: StepKind | None = None  # the steps around which ``watching`` is, if it watches only one kind
    alone = False  # made and read when all others are read and their trainer is released; it watches no step
    early = False  # made before the model is, whose every allocation it must see
    order = Order.USUAL

    def __init__(self, session: Session) -> None:
        self.session = session
        self.uncounted: dict[str, str] = {}  # metrics that cannot be counted here, with the reasons
        self.called = frozenset[str]()  # modules of which a step has called functions
        self.has_grown = False  # whether readings have something that ends, or grows for ever: later steps tell
        self.grows_late = False  # whether later steps show that something grows in Python, and readings did not

    def built(self, parameters: int) -> None:
        """The model is built with so many parameters, tied ones counted once; no technique has changed it yet."""

    def prepared(self, trainer: Trainer) -> None:
        """The engine is ready and checked; no step has run."""
        self.trainer = trainer

    def feed(self, kind: StepKind) -> contextlib.AbstractContextManager[object]:
        """A context around making one step's batch."""
        return contextlib.nullcontext()

    def step(self, kind: StepKind) -> contextlib.AbstractContextManager[object]:
        """A context around one step, or around a block of unfenced ones."""
        return self.watching() if kind == self.watches else contextlib.nullcontext()

    def watching(self) -> contextlib.AbstractContextManager[object]:
        """A context around a step of the kind that it watches."""
        return contextlib.nullcontext()

    def stepped(self, kind: StepKind, outcome: StepOutcome) -> None:
        """A step is done; reading here is outside the clock."""

    def evaluated(self, loss: float) -> None:
        """An epoch and its evaluation are done."""

    def readings(self) -> dict[str, Reading]:
        """All that was measured, by the metric's name. What is missing is in ``uncounted`` from now on."""
        raise NotImplementedError

    def readings_after(self, others: Mapping[str, Reading]) -> dict[str, Reading]:
        """All that a meter measures which stands ``alone``, when the ``others`` are known."""
        return self.readings()

    def later(self, step: int, outcome: StepOutcome, seconds: float) -> None:
        """That step of a script after all measured ones is done, and 0 is before the first. The readings are made."""

    def later_readings(self, readings: Mapping[str, Reading]) -> dict[str, Reading]:
        """What these steps change of the readings. The script may be in the middle of a step, in another thread."""
        return {}


def meters_of(session: Session, made: Sequence[Meter] = ()) -> list[Meter]:
    """The meters that watch the cell's steps, the outermost first. Those that are already ``made`` are kept."""
    ready = {type(meter): meter for meter in made}
    kinds = [kind for kind in kinds_of_meters(session) if not kind.alone]
    return sorted((ready.get(kind) or kind(session) for kind in kinds), key=lambda meter: meter.order)


def kinds_of_meters(session: Session) -> list[type[Meter]]:
    """Those for the cell's process and its launch, in no order."""
    modules, job = session.catalog.modules("metric"), session.job
    needed = [one for one in modules if not job.times_only or any(metric.is_timed for metric in one.METRICS)]
    kinds: list[type[Meter]] = [module.METER for module in needed]
    process, launch = session.strategy.engine.process, "traced" if job.traces else "measured"
    return [kind for kind in kinds if process in kind.processes and launch in kind.launches]
