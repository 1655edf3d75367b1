"""Epochs: the memory that stays alive after each, and the loss of their evaluations. Growth per epoch is a leak.

Trainings with evaluations have run out of memory "after several epochs", although every single step fitted: outputs
were kept, or an allocator never freed.
"""

import itertools

from perfsuite.catalog.definitions import OF_A_PEAK, Metric
from perfsuite.errors import RankError
from perfsuite.rank.memory.recorder import live_bytes, open_source
from perfsuite.rank.meter import Meter
from perfsuite.rank.session import Session
from perfsuite.records.sample import Reading
from perfsuite.system.units import BYTES, NUMBER

STEADY_EPOCHS = 3  # an allocator may reserve more in the second epoch; growth in three or more does not end


class Epochs(Meter):
    """Reads nothing if a cell has only one epoch, since no evaluation follows it."""

    processes = ("training",)

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.source = open_source(session)
        self.live: list[int] = []
        self.reserved: list[int] = []
        self.losses: list[float | None] = []

    def evaluated(self, loss: float) -> None:
        self.losses.append(loss)
        self.live.append(live_bytes(self.source))
        if self.source.reserved_bytes is not None:
            self.reserved.append(self.source.reserved_bytes)
        check_live(self.live)
        check_reserved(self.reserved)

    def readings(self) -> dict[str, Reading]:
        if not self.live:
            return {}
        readings = {
            "epoch_live_bytes": Reading(value=self.live[-1], samples=list(self.live)),
            "evaluation_loss": Reading(value=self.losses[-1] or 0.0, samples=self.losses),
        }
        if self.reserved:
            readings["epoch_reserved_bytes"] = Reading(value=self.reserved[-1], samples=list(self.reserved))
        return readings


def check_live(live: list[int]) -> None:
    """Raise RankError if the last epoch left more bytes alive than the one before."""
    if len(live) > 1 and live[-1] > live[-2]:
        raise RankError(
            f"Memory leaks: {live[-1] - live[-2]:,} bytes more are alive after epoch {len(live)} and its evaluation "
            f"than after epoch {len(live) - 1} ({live[-1]:,} in all)."
        )


def check_reserved(reserved: list[int]) -> None:
    """Raise RankError if the allocator took more from the device in every epoch."""
    grown = [after - before for before, after in itertools.pairwise(reserved)]
    if len(reserved) >= STEADY_EPOCHS and min(grown) > 0:
        raise RankError(
            f"Memory leaks: the allocator reserves more in every one of {len(reserved)} epochs, {grown[-1]:,} bytes "
            f"in the last ({reserved[-1]:,} in all), although no tensor stays alive."
        )


METER = Epochs
METRICS = (
    Metric("epoch_live_bytes", "alive after an epoch", BYTES, hold="exact", optional=True, materiality=OF_A_PEAK),
    Metric("epoch_reserved_bytes", "reserved after an epoch", BYTES, optional=True),
    Metric("evaluation_loss", "evaluation loss", NUMBER, fold="mean", hold="close", worse="different", optional=True),
)
