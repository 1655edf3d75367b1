"""The checkpoints that a script writes during the iterations that perfsuite sees: rank/script/saves.py watches them.

A cell's own are in meters/checkpoints.py, which has the metrics. Nothing is read of a script that saves none.
"""

import statistics
from typing import Any

from perfsuite.rank.meter import Meter
from perfsuite.records.sample import Reading


class ScriptSaves(Meter):
    """The median save: the first one may write more, such as a warning."""

    processes = ("script",)

    def readings(self) -> dict[str, Reading]:
        trainer: Any = self.trainer  # only a script's trainer has them
        made = trainer.saves.made
        if not made:
            return {}
        readings = {"save_stall_seconds": Reading(value=statistics.median(one.seconds for one in made))}
        if not any(one.is_async for one in made):
            sizes = [one.written.total() for one in made]
            typical = made[sizes.index(statistics.median_low(sizes))]
            readings["checkpoint_bytes"] = Reading(value=typical.written.total(), parts=dict(typical.written))
        return readings


METER = ScriptSaves
METRICS = ()
