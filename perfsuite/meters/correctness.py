"""The loss of every step, and the gradient norm of the steps before the timed ones, for which perfsuite computes it
itself; a number that is not finite ends the cell.
"""

import math
from typing import Any

from perfsuite.catalog.definitions import Metric
from perfsuite.catalog.processes import WITH_LOSS
from perfsuite.errors import RankError
from perfsuite.rank.meter import Meter
from perfsuite.rank.norms import local
from perfsuite.rank.session import Session
from perfsuite.rank.trainer import StepOutcome
from perfsuite.records.sample import Reading
from perfsuite.records.step_kinds import LONG, READS_NORM, StepKind
from perfsuite.system.units import NUMBER

BEFORE_TIMED = (StepKind.TRACED, StepKind.WARMUP)
GRADED = ("training", "script")  # the processes whose gradients can be seen


class Correctness(Meter):
    """Reads both numbers after the clock has stopped, and checks at the end that replicas are still equal. A script's
    norm is that of the gradients that each rank has.
    """

    processes = WITH_LOSS

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.losses: list[float | None] = []
        self.norms: list[float | None] = []
        self.own = session.strategy.engine.own
        self.training = session.strategy.engine.process in GRADED

    def stepped(self, kind: StepKind, outcome: StepOutcome) -> None:
        step, believed = len(self.losses), not self.session.emulated  # where most kernels compute nothing, no number is
        if outcome.loss is None:
            self.uncounted["loss"] = "backward begins with no single number"
        loss = (outcome.finite_loss(step) if believed else None) or 0.0
        if kind in LONG:
            return
        self.losses.append(loss)
        if not self.training or (outcome.gradient_norm is None and (self.own or kind not in READS_NORM)):
            return
        if outcome.gradient_norm is None:
            raise RankError(f"Step {step} has no gradient norm.")
        norm = float(outcome.gradient_norm) if believed else 0.0
        if not math.isfinite(norm) and not outcome.skipped:
            raise RankError(f"The gradient norm is {norm} in step {step}.")
        if kind in BEFORE_TIMED:  # the same steps for every engine and every number of timed steps
            self.norms.append(None if outcome.skipped else norm)

    def readings(self) -> dict[str, Reading]:
        self._check_replicas()
        assert self.losses[-1] is not None
        loss = {"loss": Reading(value=self.losses[-1], samples=list(self.losses))}
        loss = {name: reading for name, reading in loss.items() if name not in self.uncounted}
        if not self.training:
            return loss
        known = [norm for norm in self.norms if norm is not None]
        if not known and self.own:
            self.uncounted["gradient_norm"] = "no warm-up step had gradients when its optimizer stepped"
            return loss
        if not known:
            raise RankError(
                f"All {len(self.norms)} steps with a norm overflowed in fp16, so the optimizer made no step."
            )
        return loss | {"gradient_norm": Reading(value=known[-1], samples=list(self.norms))}

    def _check_replicas(self) -> None:
        """Ranks with the same parameters must have equal values, or the gradients were not reduced correctly.

        The sums are compared exactly; every rank applied the same update to the same numbers.
        """
        import torch
        import torch.distributed as dist

        if not dist.is_initialized():
            return
        by_group: dict[Any, list[torch.Tensor]] = {}
        for tensor, group in self.trainer.replicated():
            by_group.setdefault(group, []).append(local(tensor.detach()).double().sum())
        for group, sums in by_group.items():
            mine = torch.stack(sums).to(self.session.device)  # offloaded parameters are on the host
            gathered = [torch.empty_like(mine) for _ in range(dist.get_world_size(group))]
            dist.all_gather(gathered, mine, group=group)
            ranks = dist.get_process_group_ranks(group)
            for rank, other in zip(ranks, gathered, strict=True):
                different = int((other != gathered[0]).sum())
                if different:
                    raise RankError(
                        f"{different} of {len(sums)} parameters on rank {rank} differ from rank {ranks[0]}'s after "
                        f"{len(self.losses)} steps: gradients are not reduced over the ranks."
                    )


METER = Correctness
METRICS = (
    Metric("loss", "loss", NUMBER, fold="mean", hold="close", worse="different"),
    # AVX2's and AVX-512's kernels differ by 3e-4 if a ReLU's input is nearly zero.
    Metric(
        "gradient_norm",
        "gradient norm",
        NUMBER,
        processes=GRADED,
        bound=1e-3,
        fold="mean",
        hold="close",
        worse="different",
    ),
)
