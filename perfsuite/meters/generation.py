"""New tokens: the tokens that generation makes, without the positions of its prompts (meters/clock.py). A script's are
those that transformers' generate() returned in a step, padding included.
"""

import statistics
from collections.abc import Mapping

from perfsuite.catalog.definitions import Metric
from perfsuite.rank.meter import Meter
from perfsuite.rank.session import Session
from perfsuite.rank.trainer import StepOutcome
from perfsuite.records.sample import Reading
from perfsuite.records.step_kinds import StepKind
from perfsuite.system.units import COUNT


class Generation(Meter):
    """Only engines that generate have ``new_tokens``, which is per sample."""

    processes = ("inference", "script")

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.generated: list[int] = []

    def stepped(self, kind: StepKind, outcome: StepOutcome) -> None:
        if kind == StepKind.TIMED:
            self.generated.append(outcome.new_tokens)

    def readings(self) -> dict[str, Reading]:
        if any(self.generated):
            return {"new_tokens": Reading(value=statistics.median_low(self.generated))}
        per_sample = getattr(self.trainer, "new_tokens", 0)
        tokens = per_sample * self.session.job.workload.micro_batch * self.session.leads_replica
        return {"new_tokens": Reading(value=tokens)} if per_sample else {}


def new_tokens_per_second(readings: Mapping[str, Reading], world_size: int) -> float | None:
    """New tokens of all ranks per second of the median step, which reads the prompts too."""
    if "new_tokens" not in readings:
        return None
    return readings["new_tokens"].value / readings["step_time_seconds"].value


METER = Generation
METRICS = (
    Metric("new_tokens", "new tokens/step", COUNT, fold="sum", hold="exact", worse="different", optional=True),
    Metric(
        "new_tokens_per_second",
        "new tokens/s",
        COUNT,
        worse="lower",
        column=6,
        optional=True,
        derive=new_tokens_per_second,
    ),
)
