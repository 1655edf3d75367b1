"""What a step computes and sends, counted on fake tensors by the same meters as in a run."""

from perfsuite.meters.communication import Communication
from perfsuite.meters.flops import Flops
from perfsuite.meters.operators import Operators
from perfsuite.rank.meter import Meter
from perfsuite.rank.session import Session
from perfsuite.rank.trainer import Trainer
from perfsuite.records.sample import Reading

PART = "arithmetic"  # the only part of FLOPs; operators are reported by part


class TracedFlops(Flops):
    """FLOPs are those of all ranks that do the same: of all replicas for the model's, of the stage for the hardware's.

    The model's are counted before the trace. There is no hardware, so there is no peak.
    """

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.replicas, self.alike = session.layout.data_ranks, session.layout.stage_ranks
        if session.leads_replica and not self.counts_step:
            self.count_model()

    def prepared(self, trainer: Trainer) -> None:
        self.trainer = trainer

    def readings(self) -> dict[str, Reading]:
        counts = self.counter.get_flop_counts().get("Global", {})
        suspects = {f"{PART}: {operator}": int(count) * self.alike for operator, count in counts.items()}
        total = sum(suspects.values())
        hardware = Reading(value=total, parts={PART: total}, suspects=suspects)
        return self.counted(self.model_flop * self.replicas, hardware)

    def _peak(self) -> float:
        return 0.0


class TracedOperators(Operators):
    """Names all operators: two releases often differ in rare ones."""

    most = None


def counters(session: Session) -> list[Meter]:
    """In the same order as in a run."""
    return [Communication(session), TracedFlops(session), TracedOperators(session)]
