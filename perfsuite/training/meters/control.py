"""The control: work that no library's release changes, timed in the same ranks just before and after the timed steps.

If the control got slower too, the machine did, not the library. A round is a matmul, a copy and an all-reduce at the
cell's sizes: as many multiplications as a forward has, over matrices as wide as the model's, and as many bytes as its
parameters. All ranks start a round together, as they start a step, and the slowest counts. It is repeated until a round
is longer than the slices of time in which the scheduler lets others run: a shorter one lies between them.
"""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from typing import TYPE_CHECKING

from perfsuite.catalog.definitions import Metric
from perfsuite.records import Reading
from perfsuite.training.batches import positions
from perfsuite.training.meters._base import Meter
from perfsuite.units import show_seconds

if TYPE_CHECKING:
    from perfsuite.training.session import Session

ROUNDS = 5  # before, and again after
ROUND_SECONDS = 0.005  # at least; Linux gives a thread that shares its core a few milliseconds at a time
SHORTEST = 1e-5  # of the work, in seconds, whatever a clock says
LAYER_FACTOR = 24  # parameters of two layers of width h are 24 h²: the width of a model that has a few of them
MOST_WIDTH, MOST_BYTES, MOST_MATMULS = 4096, 2**26, 200


class Control(Meter):
    """Not under a capacity, of which it would take its share: time is not held there."""

    inner = -1  # entered first: nothing else watches it

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.seconds: list[float] = []
        self.began = False

    def step(self, kind: str) -> contextlib.AbstractContextManager[object]:
        first = kind == "timed" and not self.began
        if (first or kind == "counted") and self.session.job.capacity_bytes is None:
            self.began = True
            self.seconds += self._rounds()
        return contextlib.nullcontext()

    def readings(self) -> dict[str, Reading]:
        if not self.seconds:
            return {}
        return {"control_seconds": Reading(value=statistics.median(self.seconds), samples=list(self.seconds))}

    def _rounds(self) -> list[float]:
        """Seconds of the control's work in each round, behind untimed work that allocates; all tensors are gone
        afterwards.
        """
        import torch
        import torch.distributed as dist

        session, parameters = self.session, self.session.job.model.parameters
        width = min(MOST_WIDTH, max(64, 64 * round(math.sqrt(parameters / LAYER_FACTOR) / 64)))
        count = min(MOST_MATMULS, max(1, round(parameters / width**2)))
        dtype, device = session.compute_dtype, session.device
        left = torch.ones(positions(session.job.workload), width, dtype=dtype, device=device)
        right = torch.ones(width, width, dtype=dtype, device=device)
        source = torch.ones(min(4 * parameters, MOST_BYTES) // 4, device=device)
        target = torch.empty_like(source)

        def seconds(repeats: int) -> float:
            if dist.is_initialized():
                dist.barrier()
            session.synchronize()
            begin = time.perf_counter_ns()
            for _ in range(repeats):
                for _ in range(count):
                    left @ right
                target.copy_(source)
                if dist.is_initialized():
                    dist.all_reduce(target)
            session.synchronize()
            return (time.perf_counter_ns() - begin) / 1e9 / repeats

        seconds(1)
        slowest = torch.tensor(seconds(1), dtype=torch.float32, device=device)
        if dist.is_initialized():
            dist.all_reduce(slowest, dist.ReduceOp.MAX)  # all ranks must repeat as often
        repeats = max(1, math.ceil(ROUND_SECONDS / max(slowest.item(), SHORTEST)))
        return [seconds(repeats) for _ in range(ROUNDS)]


METER = Control
METRICS = (
    Metric(
        name="control_seconds",
        title="control",
        show=show_seconds,
        fold="max",
        hold="control",
        optional=True,
    ),
)
