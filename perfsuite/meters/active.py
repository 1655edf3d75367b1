"""What a script really uses: optimizers, wrappers, precision, ZeRO stage, and modules that it evaluates with gradients.

Each rank has its own facts, so a part is the number of ranks that have one. A library that falls back silently, such as
FSDP to DDP on a CPU, and an evaluation without ``torch.no_grad()`` in any of the measured steps are a part that moved.
A cell of the catalog needs no baseline for it: its engine is checked.
"""

from perfsuite.catalog.definitions import Metric
from perfsuite.rank.meter import Meter
from perfsuite.records.sample import Reading
from perfsuite.system.units import FACTS


class Active(Meter):
    """Asks at the end: a step may be the first that evaluates."""

    processes = ("script",)

    def readings(self) -> dict[str, Reading]:
        facts = {f"{name} {fact}": 1 for name, fact in self.trainer.check().items()}
        return {"active_facts": Reading(value=len(facts), parts=facts)}


METER = Active
METRICS = (Metric("active_facts", "what is active", FACTS, fold="sum", hold="exact", worse="different", optional=True),)
