"""What a training begins with: digests of its weights, of its first batches, and of the rows that each step reads.

They are no metrics that can be worse: compare/origins.py names those that differ if the numbers of a training do. A
cell's batches are digested as its first steps make them, and a script's as rank/script/first_data.py sees them.
"""

from typing import Any

from perfsuite.catalog.definitions import Metric
from perfsuite.catalog.processes import WITH_OWN
from perfsuite.rank.contents import digests_in, digests_of_module, folded
from perfsuite.rank.meter import Meter
from perfsuite.rank.session import Session
from perfsuite.rank.trainer import Trainer
from perfsuite.records.digests import BEFORE, STEPS, joined
from perfsuite.records.sample import Reading
from perfsuite.system.units import WHOLE

BATCHES = 2  # of a cell


class FirstDataMeter(Meter):
    """The value is how many names there are."""

    processes = WITH_OWN
    trainer: Any

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.weights: dict[str, str] = {}
        self.batches: dict[str, list[str]] = {}
        self.before = 0

    def prepared(self, trainer: Trainer) -> None:
        super().prepared(trainer)
        if self.session.strategy.engine.own:
            self.before = len(self.trainer.loaders.order)
        elif not self.session.emulated:
            self.weights = digests_of_module(trainer.model)
            self._watch_batches(self.trainer)

    def _watch_batches(self, trainer: Any) -> None:
        make, made = trainer.batch, 0

        def batch(step: int) -> Any:
            nonlocal made
            parts = make(step)
            if made < BATCHES:
                for part in parts:
                    for name, digest in digests_in(part.inputs):
                        self.batches.setdefault(name, []).append(digest)
            made += 1
            return parts

        trainer.batch = batch

    def readings(self) -> dict[str, Reading]:
        own = self.session.strategy.engine.own
        first: Any = self.trainer.watched.first if own else self
        found = {"first_batches": first.batches}
        if not self.session.emulated:
            weights = first.weights(self.trainer.watched.roots.keys()) if own else self.weights
            found["initial_weights"] = {name: [one] for name, one in folded(weights).items()}
        if own:
            known = {} if self.session.emulated else first.inputs
            changed = {name: digests for name, digests in known.items() if digests != first.batches.get(name)}
            found |= {"first_inputs": changed, "sample_order": self._order()}
        return {name: Reading(value=len(names), digests=names) for name, names in found.items()}

    def _order(self) -> dict[str, list[str]]:
        order, period = self.trainer.loaders.order, self.trainer.period
        steps = [joined(order[at : at + period]) for at in range(self.before, len(order) - period + 1, period)]
        return {BEFORE: order[: self.before], STEPS: steps} if any(order) else {}


METER = FirstDataMeter
METRICS = tuple(
    Metric(name, title, WHOLE, optional=True)
    for name, title in (
        ("initial_weights", "modules of the initial weights"),
        ("first_batches", "names in the first batches"),
        ("first_inputs", "names in the first inputs that are not the batch's"),
        ("sample_order", "known orders of samples"),
    )
)
