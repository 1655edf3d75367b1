"""Iterations: how many a step of a script has, and the steps in which it does more than in most.

A loop that evaluates after every fifth update repeats only then: a step has five iterations. What is rarer, such as a
sample every n-th step, is an extra. rank/script/loop.py finds the plain loop. The times are medians, so a rare extra is
in none of them.
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
        extra = Reading(value=self.steps.total(), parts=dict(self.steps))
        return {"iterations": Reading(value=self.trainer.period), "extra_steps": extra}


METER = Extras
METRICS = (
    Metric("iterations", "iterations/step", WHOLE, optional=True),
    Metric("extra_steps", "steps with extras", WHOLE, optional=True),
)
