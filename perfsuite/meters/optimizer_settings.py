"""What a script's optimizers were told: learning rate, weight decay, betas, …, and which tensors a group has.

Each rank has its own facts, so a part is the number of ranks that have one.
"""

from typing import Any

from perfsuite.catalog.definitions import Metric
from perfsuite.rank.meter import Meter
from perfsuite.records.sample import Reading
from perfsuite.system.units import FACTS


class OptimizerSettings(Meter):
    """Reads what was noted in the first updates."""

    processes = ("script",)
    trainer: Any  # a script's

    def readings(self) -> dict[str, Reading]:
        facts = dict.fromkeys(self.trainer.watched.told.facts(), 1)
        return {"optimizer_settings": Reading(value=len(facts), parts=facts)} if facts else {}


METER = OptimizerSettings
METRICS = (
    Metric(
        "optimizer_settings", "optimizer settings", FACTS, fold="sum", hold="exact", worse="different", optional=True
    ),
)
