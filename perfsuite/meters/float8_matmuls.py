"""float8 matmuls: how many a step calls, which proves that a cell with fp8 multiplies in float8.

A converted linear layer multiplies three times in a micro-batch: for its output, its input's gradient and its weight's
gradient. With checkpointing it computes its output again. Layers that compute in bf16, or emulate float8, call none.
With fp8_gather FSDP2 asks each weight for its float8 at least once.
"""

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

from perfsuite.catalog.definitions import Metric
from perfsuite.errors import WrongEngine
from perfsuite.rank.meter import Meter, Order
from perfsuite.rank.torch_types import Module
from perfsuite.records.sample import Reading
from perfsuite.records.step_kinds import StepKind
from perfsuite.system.units import WHOLE

PER_LAYER = 3  # matmuls of a layer in forward and backward


def linears(model: Module) -> int:
    """How many of the model's layers are torchao's."""
    from torchao.float8.float8_linear import Float8Linear

    return sum(isinstance(module, Float8Linear) for module in model.modules())


class Float8Matmuls(Meter):
    """Counts in the counted step, under the modes of all other meters, where torchao's tensors have become plain."""

    processes = ("training",)
    watches = StepKind.COUNTED
    order = Order.PATCHES
    calls = 0
    gathers = 0  # of weights in float8

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            if self.session.recipe.float8:
                stack.enter_context(self._mode())
            if self.session.recipe.gathers_float8:
                stack.enter_context(self._gathered())
            yield

    def _gathered(self) -> AbstractContextManager[Any]:
        from torchao.float8.fsdp_utils import WeightWithDynamicFloat8CastTensor as Weight

        gather = Weight.fsdp_pre_all_gather

        def counted(weight: Any, mesh: Any) -> Any:
            self.gathers += 1
            return gather(weight, mesh)

        return mock.patch.object(Weight, "fsdp_pre_all_gather", counted)

    def _mode(self) -> Any:
        from torch.utils._python_dispatch import TorchDispatchMode
        from torchao.float8.float8_training_tensor import Float8TrainingTensor

        meter = self

        class CountingFloat8(TorchDispatchMode):
            def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                if any(issubclass(kind, Float8TrainingTensor) for kind in types):
                    return NotImplemented  # it calls the operators on its parts
                meter.calls += function.overloadpacket.__name__ == "_scaled_mm"
                return function(*args, **(kwargs or {}))

        mode: Any = CountingFloat8
        return mode()

    def readings(self) -> dict[str, Reading]:
        if not self.session.recipe.float8:
            return {}
        layers = linears(self.trainer.model)
        least = PER_LAYER * layers * self.session.recipe.accumulation
        if self.calls < least or not layers:
            raise WrongEngine(
                f"fp8 must multiply in float8 at least {least} times in a step of {layers} layers, but it did so "
                f"{self.calls} times."
            )
        if self.session.recipe.gathers_float8 and self.gathers < layers:
            raise WrongEngine(
                f"fp8_gather must gather the weights of {layers} layers in float8, but gathered {self.gathers}."
            )
        return {"float8_matmuls": Reading(value=self.calls)}


METER = Float8Matmuls
METRICS = (Metric("float8_matmuls", "float8 matmuls/step", WHOLE, hold="exact", worse="different", optional=True),)
