"""A script's training as meters see an engine: its modules, its tensors, and what each step gave."""

import gc
import math
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from perfsuite.rank.batches import MicroBatch
from perfsuite.rank.memory.whereabouts import inner_model
from perfsuite.rank.norms import elements_of, local, stored, unwrapped, with_storage
from perfsuite.rank.script.batch_size import tensors_in, total_of
from perfsuite.rank.script.loaders import Loaders
from perfsuite.rank.script.rollouts import Rollouts
from perfsuite.rank.script.saves import Saves
from perfsuite.rank.script.watched import LoopMoments, Watched
from perfsuite.rank.session import Session
from perfsuite.rank.torch_types import Module, Tensor
from perfsuite.rank.trainer import StepOutcome, Trainer
from perfsuite.records.step_kinds import StepKind

FP32 = 4  # bytes of an element


@dataclass(frozen=True)
class SeenScript:
    """What is seen of a script's process: its loop, what it generates, what it saves, and the data that it loads."""

    watched: Watched
    rollouts: Rollouts
    saves: Saves
    loaders: Loaders


class ScriptTrainer(Trainer):
    """Makes no steps and no batches: the script does. A step has ``period`` iterations, and ``first_seconds`` are those
    of each iteration that showed the loop.
    """

    norm_kinds = (StepKind.WARMUP,)  # nowhere else: it calls operators, which other steps count
    batch_in_step = True

    def __init__(
        self,
        session: Session,
        model: Module,
        seen: SeenScript | None = None,
        period: int = 1,
        first_seconds: Sequence[float] = (),
    ) -> None:
        super().__init__(session, model)
        assert seen, "only a script's own process has this trainer"
        self.watched, self.rollouts, self.saves, self.loaders = seen.watched, seen.rollouts, seen.saves, seen.loaders
        self.rollouts.tokens = 0
        self.extras: list[list[str] | None] = []  # what each iteration of this step did beside the plain one
        self.period, self.first_seconds = period, first_seconds
        self.norm: float | None = None
        self.watched.follow(LoopMoments(before_optimizer=self._read_norm))

    @property
    def recomputing(self) -> bool:
        return self.watched.recomputing

    def check(self) -> dict[str, str | int]:
        """What is really active, so that a library's silent fallback is a difference."""
        return active(self.watched)

    def batch(self, step: int) -> list[MicroBatch]:
        return []

    def make_steps(self, batches: Sequence[list[MicroBatch]]) -> Generator[None, bool, list[StepOutcome]]:
        self.session.mark("other")
        self.extras = []
        skipped = yield
        return [StepOutcome(skipped=skipped)]

    def iterated(self, extras: list[str] | None) -> None:
        """An iteration of this step has ended, and did this beside the plain one."""
        self.extras.append(extras)

    def finished(self, outcome: StepOutcome) -> StepOutcome:
        """What the script has computed, read where no meter watches."""
        return super().finished(self.outcome(bool(outcome.skipped)))

    def outcome(self, skipped: bool) -> StepOutcome:
        """Of the step that has ended, whose losses and norm are forgotten. The loss is what backward began with, summed
        over the micro-batches; None if it was no single number.
        """
        losses, norm, engine = list(self.watched.losses), self.norm, self.watched.engine
        if norm is not None and engine is not None and (known := engine.get_global_grad_norm()) is not None:
            norm = float(known)  # DeepSpeed clips inside of its step
        size = total_of(self.watched.sizes)
        new_tokens, self.rollouts.tokens = self.rollouts.tokens, 0
        self.watched.forget()
        self.norm = None
        loss = sum(float(loss) for loss in losses) if losses else None
        return StepOutcome(loss, norm, skipped, size.samples, size.tokens, size.labels, new_tokens, size.unused)

    def _read_norm(self) -> None:
        """The 2-norm of the gradients that this rank has before they are clipped, or when its optimizer steps.

        Unknown if that is in a backward: then they are never there together.
        """
        if not self.reads_norm or self.watched.clipped or self.watched.runs("backward"):
            return
        import torch

        with torch.no_grad():
            gradients = [elements_of(local(one.grad)) for one in self.optimized() if one.grad is not None]
            if gradients:
                self.norm = math.hypot(*(float(torch.linalg.vector_norm(gradient.float())) for gradient in gradients))

    def optimized(self) -> Iterator[Any]:
        for optimizer in self.watched.optimizers.values():
            for group in optimizer.param_groups:
                yield from group["params"]

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Of all that the modules and the optimizers know."""
        known = set()
        modules = self.watched.roots.values()
        half = any(one.element_size() < FP32 for module in modules for one in module.parameters())
        has_masters = half or self.watched.engine is not None  # else they are parameters that no module has
        for module in [*self.watched.roots.values(), *self.watched.frozen.values()]:
            for parameter in map(unwrapped, module.parameters()):
                known.add(id(parameter))
                yield from (("parameters", here) for here in stored(parameter))
                if parameter.grad is not None:
                    yield "gradients", parameter.grad
        for parameter in self.optimized():
            if id(parameter) not in known:
                yield "master_parameters" if has_masters else "parameters", parameter
            if parameter.grad is not None:
                yield "gradients", parameter.grad
        for optimizer in self.watched.optimizers.values():
            for state in list(optimizer.state.values()):
                yield from (("optimizer_state", tensor) for _, tensor in tensors_in(state))

    def batch_tensors(self) -> Iterator[Tensor]:
        """Workers of a DataLoader hand them over in shared memory."""
        for batch in self.loaders.last_batches():
            yield from with_storage(batch)


def names_of(models: Sequence[Module]) -> dict[str, Module]:
    """Several models by the names of their classes, numbered if there are several of one."""
    kinds = Counter(type(inner_model(model)).__name__ for model in models)
    names: dict[str, Module] = {}
    for model in models:
        kind = type(inner_model(model)).__name__
        number = sum(name.partition("_")[0] == kind for name in names)
        names[f"{kind}_{number}" if kinds[kind] > 1 else kind] = model
    return names


def active(watched: Watched) -> dict[str, str | int]:
    """The optimizers, wrappers, precision and engine that the script really uses, and its ranks."""
    import torch.distributed as dist

    modules = [module for root in watched.roots.values() for module in root.modules()]
    wrappers = sorted({type(one).__name__ for one in modules if _wraps(type(one))})
    evidence: dict[str, str | int] = {
        "optimizers": ", ".join(_name(type(optimizer)) for optimizer in watched.optimizers.values()),
        "wrappers": ", ".join(wrappers) or "none",
        "world size": dist.get_world_size() if dist.is_initialized() else 1,
        "autocast": ", ".join(sorted(watched.autocast)) or "off",
    }
    if not gc.isenabled():  # circles of objects then stay, which a count after a collection does not see
        evidence["garbage collection"] = "off"
    if watched.evaluated:
        evidence["evaluated with gradients"] = ", ".join(sorted(watched.evaluated))
    if watched.engine is not None:
        evidence["ZeRO stage"] = int(watched.engine.zero_optimization_stage())
    return evidence


def _wraps(kind: type) -> bool:
    module = kind.__module__
    return kind.__name__ in ("DistributedDataParallel", "FullyShardedDataParallel", "DeepSpeedEngine") or (
        kind.__name__.startswith("FSDP") and module.startswith("torch.distributed")
    )


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
