"""The gradients of a script's first steps, by which one way to train is compared with another.

The weights stay as they are, so each step's gradient is that of the same weights; the last step updates them. Gradients
are read before they are clipped, since clipping would hide a wrong scale.
"""

import functools
import math
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import msgspec
from msgspec.structs import replace as replaced

from perfsuite.features.prove.relations._accelerate import AskedAccumulation
from perfsuite.features.prove.relations._flat import flat_parameters, whole_gradients, whole_weights
from perfsuite.features.prove.relations._given_rows import GivenRows
from perfsuite.features.prove.relations._module_traces import ModuleTraces, TraceSums, graphs, is_compiled
from perfsuite.features.prove.relations._sketches import size, sketch
from perfsuite.features.prove.relations._statistics import Statistics
from perfsuite.rank.build_model import random_states
from perfsuite.rank.norms import local, whole
from perfsuite.rank.script.probes import Probe, ProvedScript
from perfsuite.rank.script.torch_hooks import replace_clips, watch_scale
from perfsuite.rank.script.watched import replace
from perfsuite.rank.torch_types import Module
from perfsuite.records.gradients import Gradients, Sketch, StepGradients

PROBE = f"{__name__}:GradientProbe"
TRAINER = "transformers.trainer"
ENGINES = ("DistributedDataParallel", "FullyShardedDataParallel", "FSDPModule", "DeepSpeedEngine", "DataParallel")
SINGLE = 2.0**-23  # the epsilon of float32


class GradientProbe(Probe):
    """Reads the gradient of each step, of a script whose weights stay."""

    def __init__(self, torch: ModuleType, script: ProvedScript) -> None:
        super().__init__(torch, script)
        self.steps: list[StepGradients] = []
        self.random = self.uncounted = self.compiles = self.recomputes = self.sends = False
        self.epsilon = self.weights = 0.0
        self.low = ""
        self.weights_low: list[str] = []
        self.lines: dict[str, str] = {}
        self.modules: dict[str, TraceSums] = {}
        self.update: dict[str, Sketch] = {}
        self.given: dict[str, Sketch] = {}
        self._gradients: dict[str, Sketch] = {}
        self._kept: dict[str, float] = {}  # the least of each gradient that a backward of this step found there
        self._rows = GivenRows(torch, script.watched)
        self._weights: dict[str, Sketch] = {}  # before the update
        self.skipped = 0  # steps
        self.scale = 1.0  # of the loss, by a GradScaler
        self.asked = AskedAccumulation()
        self._statistics = Statistics(torch)
        self._clipped = ""  # the line that has clipped gradients which no optimizer has used yet
        watch_scale(torch, self._note_scale)
        replace(torch, "compile", functools.partial(self._noting, "compiles"))
        for name in ("send", "recv", "batch_isend_irecv") if torch.distributed.is_available() else ():
            replace(torch.distributed, name, functools.partial(self._noting, "sends"))
        replace_clips(torch, self._clipping)
        from torch.utils import checkpoint

        replace(checkpoint, "checkpoint", functools.partial(self._noting, "recomputes"))

    def _noting(self, what: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def noting(*args: Any, **kwargs: Any) -> Any:
            setattr(self, what, True)
            if not self.torch.compiler.is_compiling():  # looking for the line would break the graph
                self.lines.setdefault(what, self.script.line())
            return call(*args, **kwargs)

        return noting

    def _clipping(self, clip: Callable[..., Any]) -> Callable[..., Any]:
        def clipping(*args: Any, **kwargs: Any) -> Any:
            result = clip(*args, **kwargs)
            self._clipped = self.script.line() or clip.__name__
            return result

        return clipping

    def _note_scale(self, scale: float) -> None:
        self.scale = scale

    def imported(self, module: ModuleType) -> None:
        """transformers' Trainer divides the loss by the number of labels that it has counted. In one batch, the model's
        own mean must be the same.
        """
        self.asked.imported(module)
        if module.__name__ == TRAINER and hasattr(module.Trainer, "get_batch_samples"):
            replace(module.Trainer, "get_batch_samples", functools.partial(_without_count, self))

    def iterated(self, skipped: bool) -> None:
        """The gradients of the step are known. A skipped one had none that are finite, and is made again."""
        losses = [float(loss) for loss in self.watched.losses]
        self._clipped = ""
        if self._weights:
            self.update = {
                name: [new - old for new, old in zip(sketch(weight), self._weights[name])]  # noqa: B905, of equal lengths
                for name, weight in self._whole_weights()
                if name in self._weights
            }
            self._weights.clear()
        if not skipped:
            self.steps.append(
                StepGradients(
                    gradients=dict(self._gradients),
                    losses=[loss if math.isfinite(loss) else None for loss in losses],
                    rows=[],  # whose padding is known in the end
                    micro_batches=len(losses),
                    uncleared=any(self._kept.get(gradient) for gradient in self._gradients),
                )
            )
        else:
            self.skipped += 1
            self.modules.clear()
        self._gradients.clear()
        self._kept.clear()
        self._rows.end_step(keeps=not skipped)

    def facts(self) -> Any:
        """A record, Gradients."""
        modules = [module for root in self.watched.roots.values() for module in root.modules()]
        return msgspec.to_builtins(
            Gradients(
                steps=[replaced(step, rows=rows) for step, rows in zip(self.steps, self._rows.of_steps(), strict=True)],
                modules=[one.record(self.scale) for one in self.modules.values()],
                update=self.update,
                given=self.given,
                buffers=dict(self._buffers()),
                epsilon=self.epsilon,
                weights=self.weights,
                dropout=self.script.dropout,
                changed=self.script.changed,
                random=self.random,
                uncounted=self.uncounted,
                statistics=self._statistics.of(modules),
                loads=self.watched.has_loader,
                sends=self.sends,
                compiles=self.compiles and graphs() > 0,
                recomputes=self.recomputes,
                engine=self._engine(),
                low=self.low,
                skipped=self.skipped,
                weights_low=self.weights_low,
                ignored=self.asked.ignored(max((step.micro_batches for step in self.steps), default=1)),
                lines=self.lines,
                may_have_padding=self._rows.may_have_padding,
            )
        )

    def _buffers(self) -> Iterable[tuple[str, Sketch]]:
        """Those that may be statistics: real, and finite, which a mask of -inf is not."""
        found = ((name, sketch(buffer)) for name, buffer in self.script.buffers() if not buffer.is_complex())
        return ((name, sums) for name, sums in found if sums)

    def _engine(self) -> str:
        if self.watched.engine is not None:
            return "DeepSpeed"
        kinds = {
            base.__name__
            for model in self.script.models()
            for module in model.modules()
            for base in type(module).__mro__
        }
        return next((engine for engine in ENGINES if engine in kinds), "")

    def _parameters(self) -> Iterable[tuple[str, Any]]:
        """Those that an optimizer has, or DeepSpeed's engine, whose optimizer has shards of them."""
        optimized, engine = self.script.optimized, self.watched.engine is not None
        return (
            (name, parameter)
            for name, parameter in self.script.parameters()
            if parameter.requires_grad and (engine or id(parameter) in optimized)
        )

    def before_optimizer(self) -> None:
        """Read gradients that were not read in this step, and the weights before they change."""
        self._clipped = ""
        with self.torch.no_grad():
            self.lines.setdefault("clip" if self.watched.clipped else "update", self.script.line())
            if self.watched.engine is None or not self._gradients:  # DeepSpeed gives none within its step
                self._read()
            if not self.weights:
                self.weights = math.hypot(*(size(sketch(weight)) for _, weight in self._whole_weights()))
            if self.script.is_updating and not self._weights and not self.update:
                self._weights = {name: sketch(weight) for name, weight in self._whole_weights()}

    def _read(self) -> None:
        for name, gradient in self._whole_gradients():
            if name not in self._gradients:
                self._gradients[name] = sketch(gradient)

    def around_update(self, optimizer: Any, update: Callable[[], Any]) -> Any:
        """Parameters in a coarse dtype that the optimizer itself moves have no float32 master."""
        names = {id(parameter): name for name, parameter in self._parameters()}
        moved = [
            parameter for group in optimizer.param_groups for parameter in group["params"] if id(parameter) in names
        ]
        coarse = [names[id(one)] for one in moved if one.is_floating_point() and self._eps(one.dtype) > SINGLE]
        self.weights_low = self.weights_low or coarse
        if self.script.is_updating and not self.given and self.watched.engine is None:
            self.given = {name: sketch(gradient) for name, gradient in self._whole_gradients()}
        return update()

    def _whole_gradients(self) -> Iterable[tuple[str, Any]]:
        found = ((name, self._gradient(parameter)) for name, parameter in self._unwrapped())
        yield from ((name, gradient) for name, gradient in found if gradient is not None)
        for model in self.script.models():
            yield from whole_gradients(model)

    def _unwrapped(self) -> Iterable[tuple[str, Any]]:
        """The parameters that FullyShardedDataParallel does not keep in flat ones."""
        flat = {id(one) for model in self.script.models() for one in flat_parameters(model)}
        return ((name, parameter) for name, parameter in self._parameters() if id(parameter) not in flat)

    def _gradient(self, parameter: Any) -> Any:
        """The whole gradient of a parameter, on all ranks; None if it has none."""
        if self.watched.engine is not None:
            from deepspeed.utils import safe_get_full_grad

            self.scale = float(getattr(self.watched.engine.optimizer, "loss_scale", 1.0))
            try:
                gradient = safe_get_full_grad(parameter)
            except ValueError:  # the script clips after a micro-batch that is not the last one
                return None
            return None if gradient is None else gradient / self.scale
        gradient = parameter.grad
        if gradient is None:
            return None
        gradient = gradient.to_dense() if gradient.is_sparse else gradient
        return whole(gradient, local(parameter).device)

    def _whole_weights(self) -> Iterable[tuple[str, Any]]:
        for model in self.script.models():
            yield from whole_weights(model)
        for name, parameter in self._unwrapped():
            if self.watched.engine is not None:
                from deepspeed.utils import safe_get_full_fp32_param

                master = safe_get_full_fp32_param(parameter)
                yield name, parameter if master is None else master
            else:
                yield name, whole(parameter.detach(), local(parameter).device)

    def before_backward(self) -> None:
        """The first backward of a step must find no gradient; a later one finds what it adds to."""
        self.lines.setdefault("backward", self.script.line())
        if self.watched.engine is not None:
            return
        with self.torch.no_grad():
            for name, parameter in self._parameters():
                there = (
                    0.0 if parameter.grad is None else float(self.torch.linalg.vector_norm(_elements(parameter.grad)))
                )
                self._kept[name] = min(there, self._kept.get(name, there))
                if there and self._clipped:
                    self.lines.setdefault("parts", self._clipped)

    def _eps(self, dtype: Any) -> float:
        return float(self.torch.finfo(dtype).eps)

    def around_forward(self, model: Module, args: Any, kwargs: Any, call: Callable[[], Any]) -> Any:
        """Read the rows that a module gets in training mode, and once what its modules give."""
        torch = self.torch
        if not model.training or next(model.parameters(), None) is None:  # a loss has no rows of its own
            return call()
        self._note_precision(model)
        self._rows.read(model, args, kwargs)
        before = random_states()
        calls_modules = not (self.compiles and (graphs() or is_compiled(model)))
        traces = ModuleTraces(self, model, {"args": args, **kwargs}, on=calls_modules and not self.steps)
        with self._statistics.during(model), traces:
            result = call()
        self.random |= any(not torch.equal(*two) for two in zip(before, random_states()))  # noqa: B905
        return result

    def _note_precision(self, model: Module) -> None:
        """The coarsest arithmetic of a forward."""
        torch = self.torch
        device = next((parameter.device.type for parameter in model.parameters()), "cpu")
        dtypes = {parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()}
        if torch.is_autocast_enabled(device):
            dtypes.add(torch.get_autocast_dtype(device))
        self.note_dtype(max(dtypes, key=self._eps, default=torch.float32))
        tf32 = device == "cuda" and torch.get_float32_matmul_precision() != "highest"
        self.epsilon = max(self.epsilon, 2**-10 if tf32 else 0.0)

    def note_dtype(self, dtype: Any) -> None:
        """Something is computed in it. FSDP's policy of precision shows in what modules give alone."""
        if self._eps(dtype) > max(SINGLE, self.epsilon):
            self.low = str(dtype).removeprefix("torch.")
        self.epsilon = max(self.epsilon, self._eps(dtype))


def _elements(gradient: Any) -> Any:
    """The elements that this rank has."""
    gradient = local(gradient)
    return (gradient.coalesce().values() if gradient.is_sparse else gradient).float()


def _without_count(probe: GradientProbe, get: Callable[..., Any]) -> Callable[..., Any]:
    def getting(self: Any, *args: Any, **kwargs: Any) -> Any:
        batches, count = get(self, *args, **kwargs)
        library = type(self).compute_loss.__module__.partition(".")[0] in ("transformers", "trl")
        alone = self.args.world_size == self.args.gradient_accumulation_steps == 1
        if count is None or not library or not alone or self.compute_loss_func is not None:
            return batches, count
        probe.uncounted = True
        return batches, None

    return getting
