"""Extras: steps in which a script does more than in most, such as sampling or evaluating every n-th step.

rank/script/loop.py finds the plain loop. The times are medians, so a rare extra is in none of them.
"""

from collections import Counter
from typing import Any

from perfsuite.catalog.definitions import Metric
from perfsuite.rank.meter import Meter
from perfsuite.rank.session import Session
from perfsuite.rank.trainer import StepOutcome
from perfsuite.records.sample import Reading
from perfsuite.records.step_kinds import StepKind
from perfsuite.system.units import WHOLE

OTHERWISE = "another training"


class Extras(Meter):
    """Counts the steps of all kinds that have extras, by what they have."""

    processes = ("script",)
    trainer: Any  # a script's

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.steps: Counter[str] = Counter()

    def stepped(self, kind: StepKind, outcome: StepOutcome) -> None:
        found = self.trainer.extras
        names = [OTHERWISE if one is None else " and ".join(dict.fromkeys(one)) for one in found if one != []]
        if names:
            self.steps[" and ".join(dict.fromkeys(names))] += 1

    def readings(self) -> dict[str, Reading]:
        return {"extra_steps": Reading(value=self.steps.total(), parts=dict(self.steps))}


METER = Extras
METRICS = (Metric("extra_steps", "steps with extras", WHOLE, optional=True),)
