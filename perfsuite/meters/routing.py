"""Routing: what the routers of a mixture of experts do with a step's tokens, padding included.

Watched in the first warm-up step, since the hooks of this meter would be in the counts of other steps. The load is how
many tokens each expert of each layer gets, k for each token that chooses k experts. A route is dropped if its expert
does not exist, as one beyond a capacity, or if its weight is zero. The auxiliary loss is the routers' share of the
loss: the auxiliary loss of the model's output times the gradient that backward gives it, so nothing if backward never
gets there (arXiv 2101.03961, section 2.2).
"""

import contextlib
import inspect
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from perfsuite.catalog.definitions import Materiality, Metric
from perfsuite.rank.meter import Meter
from perfsuite.rank.session import Session
from perfsuite.rank.torch_types import Module
from perfsuite.rank.trainer import StepOutcome
from perfsuite.records.sample import Reading
from perfsuite.records.step_kinds import StepKind
from perfsuite.system.units import COUNT, NUMBER, WHOLE

NEARLY_EQUAL = Materiality(0.01, "Rounding decides where a token goes whose experts are nearly equal.")


class Routing(Meter):
    """Hooks on the experts' modules, which transformers calls with all tokens, their experts and their weights."""

    processes = ("training",)

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.load: Counter[str] = Counter()
        self.dropped = 0
        self.auxiliary: float | None = None
        self.watched = self.seen = False  # a warm-up step, and experts in it
        self._counts: list[tuple[str, Any, Any]] = []
        self._losses: list[Any] = []

    def step(self, kind: StepKind) -> contextlib.AbstractContextManager[object]:
        first = kind == StepKind.WARMUP and not self.watched
        return self.watching() if first else contextlib.nullcontext()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        self.watched, experts = True, experts_of(self.trainer.model)
        with contextlib.ExitStack() as hooked:
            if experts and "torch._dynamo" in sys.modules:  # compiled code has no hooks
                import torch

                hooked.enter_context(torch.compiler.set_stance("force_eager"))
            for path, module in experts.items():
                hook = module.register_forward_pre_hook(self._routed(path, module), with_kwargs=True)
                hooked.callback(hook.remove)
            if experts:
                # First of all hooks: those of ZeRO-3 replace the outputs, after the loss was made of them.
                hooked.callback(self.trainer.model.register_forward_hook(self._output, prepend=True).remove)
            yield
        self.seen = bool(experts)

    def _routed(self, path: str, module: Module) -> Any:
        count, layer = number_of_experts(module), next(filter(str.isdigit, path.split(".")), "")
        name = f"layer {layer}" if layer else path

        def routed(_: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            import torch

            if self.trainer.recomputing:
                return
            given = inspect.signature(type(module).forward).bind(module, *args, **kwargs).arguments
            chosen, weights = given["top_k_index"].detach(), given["top_k_weights"].detach()
            kept = (chosen >= 0) & (chosen < count) & (weights != 0)
            self._counts.append((name, torch.bincount(chosen[kept], minlength=count), (~kept).sum()))

        return routed

    def _output(self, _: Module, __: Any, output: Any) -> None:
        loss: Any = getattr(output, "aux_loss", None)
        if getattr(loss, "requires_grad", False) and not self.trainer.recomputing:
            value = loss.detach().clone()  # a hook that held the loss itself would never be freed
            loss.register_hook(lambda gradient: self._losses.append((value * gradient).float()))
            self.auxiliary = 0.0

    def stepped(self, kind: StepKind, outcome: StepOutcome) -> None:
        for layer, counts, dropped in self._counts:
            self.load.update({f"{layer}, expert {expert}": rows for expert, rows in enumerate(counts.tolist())})
            self.dropped += int(dropped)
        if self.auxiliary is not None:
            self.auxiliary += sum(float(loss) for loss in self._losses)
        self._counts.clear()
        self._losses.clear()

    def readings(self) -> dict[str, Reading]:
        if not self.seen:
            return {}
        leads = self.session.leads_replica  # the others of a replica route the same tokens
        load = dict(self.load) if leads else {}
        found = {
            "expert_load": Reading(value=sum(load.values()), parts=load),
            "dropped_routes": Reading(value=self.dropped if leads else 0),
        }
        if self.auxiliary is not None:
            if self.session.recipe.loss_scaling:
                self.uncounted["auxiliary_loss"] = "gradients are scaled in fp16"
            else:
                found["auxiliary_loss"] = Reading(value=self.auxiliary, samples=[self.auxiliary])
        return found


def experts_of(model: Module) -> dict[str, Module]:
    """The modules that compute all experts of a layer, by path."""
    kinds = {kind for kind in map(type, model.modules()) if {"top_k_index", "top_k_weights"} <= _arguments(kind)}
    return {path: module for path, module in model.named_modules() if type(module) in kinds}


def _arguments(kind: type) -> set[str]:
    try:
        return {*inspect.signature(kind.forward).parameters}  # type: ignore[attr-defined]
    except (AttributeError, TypeError, ValueError):  # of a compiled module, for one
        return set()


def number_of_experts(module: Module) -> int:
    """Of all ranks: a module whose experts are divided knows its own number, and its weights know all."""
    weights = [parameter for parameter in module.parameters(recurse=False) if parameter.dim() > 1]
    return max([int(getattr(module, "num_experts", 0)), *(weight.shape[0] for weight in weights)])


def imbalance(readings: Mapping[str, Reading], world_size: int) -> float | None:
    """The load of the fullest expert over the mean of its layer, of the layer where that is most; 1 if all have the
    same. None without experts.
    """
    layers: dict[str, list[int]] = {}
    for name, rows in readings["expert_load"].parts.items() if "expert_load" in readings else ():
        layers.setdefault(name.partition(",")[0], []).append(rows)
    return max((max(rows) * len(rows) / sum(rows) for rows in layers.values() if sum(rows)), default=None)


def idle(readings: Mapping[str, Reading], world_size: int) -> float | None:
    """How many experts of all layers no token reached. None without experts."""
    return sum(not rows for rows in readings["expert_load"].parts.values()) if "expert_load" in readings else None


METER = Routing
METRICS = (
    Metric(
        "expert_load",
        "expert load",
        COUNT,
        fold="sum",
        hold="exact",
        worse="different",
        optional=True,
        materiality=NEARLY_EQUAL,
    ),
    Metric(
        "expert_imbalance",
        "expert imbalance",
        NUMBER,
        hold="exact",
        optional=True,
        derive=imbalance,
        materiality=NEARLY_EQUAL,
    ),
    Metric("idle_experts", "idle experts", WHOLE, hold="exact", optional=True, derive=idle),
    Metric("dropped_routes", "dropped routes", WHOLE, fold="sum", hold="exact", optional=True),
    Metric("auxiliary_loss", "auxiliary loss", NUMBER, fold="mean", hold="close", worse="different", optional=True),
)
