"""What a meter is: it watches a rank's steps and tells its readings at the end."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from perfsuite.records import Reading
from perfsuite.training.trainer import StepOutcome, Trainer

if TYPE_CHECKING:
    from perfsuite.training.session import Session


TRACED_STEPS = 3  # the first has no optimizer state yet, the second may still grow, the third repeats the second
MOST_TRACED_STEPS = 30  # fp16 halves its loss scale in each step that overflows, from 2**16 down
READS_NORM = ("traced", "warmup", "counted")  # the kinds of steps that compute a gradient norm of perfsuite's own
FEWEST_BLOCKS = 5  # where there are enough steps
MOST_BLOCKS = 20  # of unfenced steps; each gives one sample
LARGEST_BLOCK = 5  # steps: in a trial, where steps are many, short blocks see the same spells of the machine


def block_size(steps: int) -> int:
    """How many steps an unfenced block has, where so many steps are timed one by one."""
    return max(1, min(LARGEST_BLOCK, steps // FEWEST_BLOCKS))


def last_kinds(steps: int, process: str, device: str, capped: bool) -> list[str]:
    """What comes after the timed steps. An unfenced block makes its batches beforehand, for which a capacity has no
    room; cells that only send messages do not compute.
    """
    if process == "communication":
        return ["counted"]
    blocks = [] if capped else ["unfenced"] * min(MOST_BLOCKS, steps // block_size(steps))
    return [*blocks, "called", "counted", *["profiled"] * (device == "cuda")]


def on_dtensors(types: Iterable[type]) -> bool:
    """Whether an operator is on DTensors, of global shape. If a dispatch mode returns NotImplemented there, what the
    operator does to this rank's parts, and what it sends, comes by one by one.
    """
    distributed = sys.modules.get("torch.distributed.tensor")
    return distributed is not None and any(issubclass(kind, distributed.DTensor) for kind in types)


class Meter:
    """Base of all meters. ``kind`` of a step is

    "traced"   the first steps; memory is recorded, so they are slow
    "warmup"   not recorded
    "timed"    nothing but the clock watches
    "unfenced" a block of steps without a barrier or a synchronization between them: ``step`` is around the whole block,
               ``stepped`` is called for each of its steps after the block
    "called"   one step whose Python calls are counted
    "counted"  one step under dispatch modes that count operators
    "profiled" one step under torch's profiler, on CUDA alone
    """

    processes: tuple[str, ...] = ("training", "inference")  # the kinds of cells that it watches
    inner = 0  # meters with a larger number are entered later: the clock's is the largest

    def __init__(self, session: Session) -> None:
        self.session = session

    def prepared(self, trainer: Trainer) -> None:
        """The engine is ready and proven; no step has run."""
        self.trainer = trainer

    def feed(self, kind: str) -> contextlib.AbstractContextManager[object]:
        """A context around the making of one step's batch."""
        return contextlib.nullcontext()

    def step(self, kind: str) -> contextlib.AbstractContextManager[object]:
        """A context around one step, or around a block of unfenced ones."""
        return contextlib.nullcontext()

    def stepped(self, kind: str, outcome: StepOutcome) -> None:
        """A step is done; what is read here is outside the clock."""

    def evaluated(self, loss: float) -> None:
        """An epoch and the evaluation behind it are done."""

    def readings(self) -> dict[str, Reading]:
        """All that was measured, by the metric's name."""
        raise NotImplementedError
