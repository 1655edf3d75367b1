"""What each module gives in a script's first step, and the gradient of it: two ways to train part there."""

import functools
import math
import sys
from collections.abc import Mapping
from typing import Any, Protocol

from perfsuite.features.prove.relations._rows import mask_of
from perfsuite.features.prove.relations._sketches import row_sketch
from perfsuite.rank.memory.whereabouts import inner_model
from perfsuite.rank.norms import local
from perfsuite.rank.script.batch_size import tensors_in
from perfsuite.rank.script.probes import ProvedScript, plain
from perfsuite.rank.torch_types import Module
from perfsuite.records.gradients import ModuleTrace, Sketch


class TraceSums:
    """What is known of a module, summed over its calls."""

    def __init__(self, name: str, line: str) -> None:
        self.name, self.line = name, line
        self.output: Any = 0
        self.gradient: Any = 0

    def record(self, scale: float) -> ModuleTrace:
        """Without the scale of the loss."""
        output, gradient = (_finite(one) for one in (self.output, self.gradient / scale))
        return ModuleTrace(name=self.name, output=output, gradient=gradient, line=self.line)


def _finite(sums: Any) -> Sketch:
    values: list[float] = sums.tolist() if hasattr(sums, "tolist") else []
    return values if all(map(math.isfinite, values)) else []


def graphs() -> int:
    """How many graphs torch.compile has made. A library may ask for some of functions that are never called."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return int(dynamo.counters["stats"]["unique_graphs"]) if dynamo else 0


def is_compiled(model: Module) -> bool:
    """Whether torch.compile has wrapped the model or a part of it."""
    return any(type(module).__name__ == "OptimizedModule" or module._compiled_call_impl for module in model.modules())


class ModuleProbe(Protocol):
    """What ModuleTraces needs of its probe."""

    modules: dict[str, TraceSums]
    script: ProvedScript

    def note_dtype(self, dtype: Any) -> None:
        """Something is computed in it."""


class ModuleTraces:
    """Inside, what the modules of a model give is noted. A compiled model has none that are called."""

    def __init__(self, probe: ModuleProbe, model: Module, inputs: Mapping[str, Any], on: bool) -> None:
        self.probe, self.model = probe, model
        self.mask = mask_of([(name, tensor) for name, tensor in tensors_in(inputs) if tensor.dim()])
        self.rows = next((len(tensor) for _, tensor in tensors_in(inputs) if tensor.dim()), 1)
        self.on = on
        self.handles: list[Any] = []

    def __enter__(self) -> None:
        for name, module in inner_model(self.model).named_modules() if self.on else ():
            leave = functools.partial(self._leave, plain(name) or type(module).__name__)
            self.handles.append(module.register_forward_hook(leave))

    def __exit__(self, *_: Any) -> None:
        for handle in self.handles:
            handle.remove()

    def _leave(self, name: str, module: Module, args: Any, output: Any) -> None:
        values = output if not hasattr(output, "__dict__") or hasattr(output, "shape") else vars(output)
        tensors = [tensor for _, tensor in tensors_in(values) if tensor.is_floating_point() and tensor.dim() > 1]
        if not tensors:
            return
        value = tensors[0]
        self.probe.note_dtype(value.dtype)
        given = next((tensor for _, tensor in tensors_in(args)), None)
        positions = given is not None and given.dim() == 1 and len(given) != self.rows
        if positions or len(value) == 1 != self.rows:  # of no row
            return
        trace = self.probe.modules.setdefault(name, TraceSums(name, self.probe.script.line()))
        trace.output = trace.output + row_sketch(local(value), self.mask)
        if value.requires_grad:

            def back(gradient: Any) -> None:
                trace.gradient = trace.gradient + row_sketch(local(gradient), self.mask)

            value.register_hook(back)
