"""What engines share whose wrapper reduces the gradients itself, during backward."""

import contextlib
from typing import Any

from perfsuite.rank.native import LoopTrainer


class Wrapped(LoopTrainer):
    """``no_sync`` of the wrapper leaves the reduction to the last micro-batch."""

    def accumulating(self) -> contextlib.AbstractContextManager[None]:
        wrapper: Any = self.module
        context: contextlib.AbstractContextManager[None] = wrapper.no_sync()
        return context


class Sharded(Wrapped):
    """Each rank has other gradients, so an overflow of fp16 on one rank must reach all."""

    def accumulating(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext() if self.session.recipe.reduces_each else super().accumulating()

    def make_scaler(self) -> Any:
        from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

        return ShardedGradScaler(self.session.job.device, enabled=self.session.recipe.loss_scaling)
