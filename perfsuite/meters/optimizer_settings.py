"""What a script's optimizers were told: weight decay, betas, …, which tensors a group has, schedules and their rates.

Each rank has its own facts, so a part is the number of ranks that have one. Launches make different numbers of updates,
so the learning rates that both have seen are compared.
"""

from collections.abc import Mapping
from typing import Any

from perfsuite.catalog.definitions import Metric
from perfsuite.rank.meter import Meter
from perfsuite.records.sample import Reading
from perfsuite.system.units import FACTS, NUMBER


class OptimizerSettings(Meter):
    """Reads what was noted in the updates."""

    processes = ("script",)
    trainer: Any  # a script's

    def readings(self) -> dict[str, Reading]:
        facts = dict.fromkeys(self.trainer.watched.told.facts(), 1)
        found = {"optimizer_settings": Reading(value=len(facts), parts=facts)} if facts else {}
        return found | self.later_readings({})

    def later_readings(self, readings: Mapping[str, Reading]) -> dict[str, Reading]:
        rates = self.trainer.watched.told.rates()
        return {"learning_rates": Reading(value=len(rates), series=rates)} if rates else {}


METER = OptimizerSettings
METRICS = (
    Metric(
        "optimizer_settings", "optimizer settings", FACTS, fold="sum", hold="exact", worse="different", optional=True
    ),
    Metric(
        "learning_rates",
        "learning rates",
        NUMBER,
        hold="series",
        worse="different",
        bound=1e-6,  # another order of the same factors rounds otherwise, by 2e-16 each
        optional=True,
    ),
)
