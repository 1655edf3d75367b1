"""What a script does after its measured steps: how many of these are seen, its end, its losses and its largest batches.

rank/script/later.py says when a script is ended. Steps that are longer from some step on are seen by their batches, and
weights that train no longer by the losses.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from perfsuite.catalog.definitions import Metric
from perfsuite.meters._growth import each_step
from perfsuite.rank.meter import Meter
from perfsuite.rank.session import Session
from perfsuite.rank.trainer import StepOutcome
from perfsuite.records.sample import Reading
from perfsuite.records.step_kinds import StepKind
from perfsuite.system.units import NUMBER, RATIO, WHOLE

FEWEST = 12  # steps whose inputs say how they spread


class LaterSteps(Meter):
    """Notes the sizes of all batches, and the losses of the later ones. What a batch does not tell is 0."""

    processes = ("script",)
    trainer: Any  # a script's

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.sizes: list[tuple[int, int]] = []  # the tokens and samples of each step
        self.losses: list[float | None] = []  # of each later step
        self.elements: list[int] = []  # of the tensors that modules were given, at the end of each later step

    def stepped(self, kind: StepKind, outcome: StepOutcome) -> None:
        self._add(outcome)

    def later(self, step: int, outcome: StepOutcome, seconds: float) -> None:
        if step:
            believed = not self.session.emulated
            self.losses.append(outcome.finite_loss(len(self.sizes)) if believed else None)
            self._add(outcome)
            self.elements.append(self.trainer.watched.elements)
        self.trainer.watched.count_elements()

    def _add(self, outcome: StepOutcome) -> None:
        self.sizes.append((outcome.tokens, outcome.samples))

    def readings(self) -> dict[str, Reading]:
        return {"input_spread": Reading(value=1.0), "later_losses": self._losses()}

    def later_readings(self, readings: Mapping[str, Reading]) -> dict[str, Reading]:
        by_name = zip(("most_tokens", "most_samples"), zip(*list(self.sizes), strict=True), strict=True)
        spread = Reading(value=_spread([one for one in each_step(self.elements) if one]))
        return {"input_spread": spread, "later_losses": self._losses()} | {
            name: Reading(value=max(numbers), samples=list(map(float, numbers)))
            for name, numbers in by_name
            if any(numbers)
        }

    def _losses(self) -> Reading:
        return Reading(value=1, series={"loss": list(self.losses)})


def _spread(sizes: Sequence[int]) -> float:
    """Where the largest tenth begins by where the smallest ends; 1 of too few. An epoch may end with a small batch."""
    if len(sizes) < FEWEST:
        return 1.0
    ordered, beyond = sorted(sizes), max(1, len(sizes) // 10)
    return ordered[-1 - beyond] / ordered[beyond]


METER = LaterSteps
_most: dict[str, Any] = {"hold": "most", "optional": True}
METRICS = (
    Metric("later_steps", "later steps seen", WHOLE, fold="min", optional=True),
    Metric("ends_seen", "ends of the script seen", WHOLE, optional=True),
    Metric("failed_ends", "ends that failed", WHOLE, bound=0.0, **_most),
    Metric(
        "later_losses",
        "losses of later steps",
        NUMBER,
        bound=1e-2,  # rounding grows from update to update
        hold="series",
        worse="different",
        optional=True,
    ),
    Metric("input_spread", "largest tenth of the inputs by the smallest", RATIO, optional=True),
    Metric("most_tokens", "tokens of the largest step", WHOLE, bound=0.5, **_most),
    Metric("most_samples", "samples of the largest step", WHOLE, bound=0.5, **_most),
)
