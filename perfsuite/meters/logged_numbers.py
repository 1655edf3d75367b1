"""The numbers that a script logs, and the losses of its evaluations: rank/script/logged.py reads them.

A loss that is wrong in evaluation alone is no loss of a step. Launches see different numbers of evaluations, so those
that both have seen are compared. Ranks fold by the mean, as losses do.
"""

from collections.abc import Mapping
from typing import Any

from perfsuite.catalog.definitions import Metric
from perfsuite.rank.meter import Meter
from perfsuite.rank.trainer import StepOutcome
from perfsuite.records.sample import Reading
from perfsuite.records.step_kinds import StepKind
from perfsuite.system.units import NUMBER


class LoggedNumbers(Meter):
    """The value is how many names there are."""

    processes = ("script",)
    trainer: Any  # a script's

    def stepped(self, kind: StepKind, outcome: StepOutcome) -> None:
        self.trainer.watched.logged.stepped()

    def later(self, step: int, outcome: StepOutcome, seconds: float) -> None:
        self.trainer.watched.logged.stepped()

    def readings(self) -> dict[str, Reading]:
        series = {name: list(numbers) for name, numbers in self.trainer.watched.logged.numbers.items() if numbers}
        return {"logged_numbers": Reading(value=len(series), series=series)}

    def later_readings(self, readings: Mapping[str, Reading]) -> dict[str, Reading]:
        return self.readings()


METER = LoggedNumbers
METRICS = (
    Metric(
        "logged_numbers",
        "logged numbers",
        NUMBER,
        hold="series",
        worse="different",
        bound=1e-3,  # an accuracy, or a loss after some updates, adds up what other kernels round
        optional=True,
    ),
)
