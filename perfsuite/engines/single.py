"""One rank, no wrapper: the reference that every other engine is compared with."""

from perfsuite.catalog.definitions import Engine
from perfsuite.errors import WrongEngine
from perfsuite.rank.native import LoopTrainer
from perfsuite.techniques import offload


class Single(LoopTrainer):
    """The plain loop."""

    def check(self) -> dict[str, str | int]:
        if self.session.world_size != 1 or self.module is not self.model:
            raise WrongEngine(f"single must be one unwrapped rank, but this is {type(self.module).__name__}.")
        return self.evidence()

    def traffic(self) -> dict[str, int]:
        return {}


ENGINES = (
    Engine(
        name="single",
        saves="torch",
        timed=True,
        loops=frozenset({"accelerate", "hf_trainer"}),
        refuses=dict.fromkeys(
            offload.NAMES,
            "the plain loop keeps everything on the device; zero2, zero3 and fsdp2 offload, on one rank too",
        ),
        trainer=Single,
        max_ranks=1,
        source="https://docs.pytorch.org/docs/stable/notes/amp_examples.html",
    ),
)
