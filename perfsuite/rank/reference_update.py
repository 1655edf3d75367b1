"""The update of one optimizer step, compared with that of one plain rank in fp32 that has the same global batch.

Both sides build the model anew, with dropout off, and make one step on batch 0. The engine is the cell's, with all of
its techniques. The reference is ``single``: no wrapper, no low precision, no checkpointing, no compiler, no offload,
eager attention, and all micro-batches of all ranks one after the other. Every rank computes it for itself.

Adam divides a gradient by its size, so a gradient that is twice too large would make the same update. With an epsilon
of 1, far above any gradient's element, the update is proportional to the gradient, and Adam's own code still runs. An
optimizer of another kind is replaced by SGD on both sides. The learning rate is so large that a parameter in bf16 holds
its update, not its old value, in most of its digits.
"""

import dataclasses
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from perfsuite.catalog.definitions import Layout
from perfsuite.catalog.strategies import Choice
from perfsuite.errors import RankError
from perfsuite.rank.build_model import build_model, prepare, random_states, seed_steps
from perfsuite.rank.recipe import recipe_of
from perfsuite.rank.session import Session
from perfsuite.rank.torch_types import Tensor
from perfsuite.rank.trainer import Trainer
from perfsuite.records.step_kinds import MOST_OVERFLOWS

LEARNING_RATE = 64.0  # a power of two, which rounds nothing
EPSILON = 1.0
DECAY = 1e-4  # AdamW's decay times the learning rate stays small beside the gradient
MOST_PARAMETERS = 300_000_000  # a larger model's reference in fp32 may not fit, and takes long
ADAMS = re.compile(r"(DeepSpeedCPU|Fused)?AdamW?(\d+bit)?")  # classes, by name: their packages need not be installed
NAMED = 3  # parameters that differ most
# Slots that change how a step is computed, not what it computes. The reference has none of their techniques.
HOW = {
    "activation checkpointing", "attention", "compilation", "epochs", "gradient accumulation", "loop", "loss",
    "offload", "precision", "replicas", "tensor-parallel width",
}  # fmt: skip
MakeOptimizer = Callable[[Any, float], Any]


@dataclass(frozen=True)
class ReferenceUpdate:
    """A rank's part of the update: its norm, per unit of the learning rate, and its error relative to the reference's
    norm. ``most`` are the parameters that differ most, each with its own relative error in millionths.
    """

    norm: float
    error: float
    most: dict[str, int]


@dataclass(frozen=True)
class Reference:
    """``before`` and ``change`` of every parameter, in fp32 on the host. ``names`` maps all names of a tied parameter
    to its first. Those of ``packed`` are bytes that nothing trains; an engine may have another dtype and shape of them.
    """

    before: dict[str, Tensor]
    change: dict[str, Tensor]
    names: dict[str, str]
    packed: frozenset[str]


def compare_update(session: Session, parameters: int) -> ReferenceUpdate | None:
    """Make the step of a model with so many ``parameters`` on both sides; None if there is nothing to compare: a large
    model, see ``_is_comparable``, and a model that draws random numbers without dropout has no single update. All ranks
    return None, or none does. Collective.
    """
    import torch

    if parameters > MOST_PARAMETERS or not _is_comparable(session):
        return None
    checked = _checked(session)
    reference = _reference(checked)
    lacks = reference is None or not _has_room(session)
    if reference is None or _most(session, torch.tensor([float(lacks)]))[0]:
        return None
    session.mark("check")  # an engine may prepare for longer than the reference's step, whose phase was the last
    trainer, _ = prepare(checked, build_model(checked), [])
    seed_steps(checked)
    _step(trainer)
    return _compare(session, reference, trainer.whole_parameters())


def _is_comparable(session: Session) -> bool:
    """Not a cell with a capacity, which the check's own tensors could exceed, nor one that leaves the library its
    defaults, which may clip, nor one that would compile again, for as long as all of its steps, nor one on an emulated
    GPU, which computes small tensors alone.
    """
    job = session.job
    if session.emulated:
        return False
    return job.capacity_bytes is None and session.recipe.stated and not session.compiles


def _checked(session: Session) -> Session:
    """The cell without dropout, with an optimizer that is proportional to the gradient, and with its process groups."""
    nodrop = Choice(session.catalog.get("technique", "nodrop"))
    choices = [
        nodrop if choice.technique.slot == nodrop.technique.slot else choice for choice in session.strategy.choices
    ]
    optimizer = session.recipe.optimizer
    return dataclasses.replace(
        session,
        strategy=dataclasses.replace(session.strategy, choices=tuple(choices)),
        recipe=dataclasses.replace(
            session.recipe,
            optimizer=proportional(optimizer),
            learning_rate=LEARNING_RATE,
            schedule=None,
            same_batch=True,
        ),
        phases=session.phases.copy(),  # faults listen, too
    )


def _alone(checked: Session) -> Session:
    """One rank in fp32 that has the micro-batches of all."""
    catalog = checked.catalog
    choices = [choice for choice in checked.strategy.choices if choice.technique.slot not in HOW]
    strategy = dataclasses.replace(checked.strategy, engine=catalog.get("engine", "single"), choices=tuple(choices))
    recipe = dataclasses.replace(
        recipe_of(strategy),
        optimizer=proportional(checked.recipe.optimizer, own=False),
        learning_rate=checked.recipe.learning_rate,
        schedule=None,
        padded=checked.recipe.padded,
        accumulation=checked.recipe.accumulation * checked.layout.data_ranks,
    )
    job = msgspec.structs.replace(checked.job, world_size=1, faults=[])
    return Session(job, 0, catalog, strategy, recipe, Layout(), None, phases=checked.phases.copy())


def _reference(checked: Session) -> Reference | None:
    """The reference's step, without communication; None if it does not fit, or the model drew random numbers."""
    import torch

    session = _alone(checked)
    # Chosen when the model is built, as every release can: transformers has no method for it before 4.54.0.
    attention = "eager" if "eager" in session.job.model.attentions else None
    try:
        trainer, _ = prepare(session, build_model(session, attention), [])
        names = {id(parameter): name for name, parameter in trainer.model.named_parameters()}
        every = trainer.model.named_parameters(remove_duplicate=False)
        aliases = {name: names[id(one)] for name, one in every}
        before = {name: _on_host(parameter).clone() for name, parameter in trainer.model.named_parameters()}
        seed_steps(session)
        random = random_states()
        _step(trainer)
        if not all(map(torch.equal, random, random_states())):
            return None
        after = dict(trainer.model.named_parameters())
        packed = frozenset(name for name, one in after.items() if not one.is_floating_point())
        change = {name: _on_host(one) - before[name] for name, one in after.items() if name not in packed}
        return Reference(before, change, aliases, packed)
    except torch.OutOfMemoryError:
        return None


def _step(trainer: Trainer) -> None:
    """One step that the optimizer makes: fp16 skips those that overflow, and lowers its loss scale."""
    for _ in range(MOST_OVERFLOWS):
        trainer.session.mark("batch")
        if not trainer.finished(trainer.step(trainer.batch(0))).skipped:
            return
    raise RankError(f"fp16 overflowed in {MOST_OVERFLOWS} steps, so there is no update to check.")


def _compare(session: Session, reference: Reference, parameters: Iterable[tuple[str, Tensor]]) -> ReferenceUpdate:
    """This rank's parameters against the reference. Raises RankError if no rank has one of its parameters, or if the
    reference changed nothing.
    """
    import torch

    own: dict[str, tuple[float, float, float]] = {}  # the norms of update, reference and difference
    for alias, tensor in parameters:
        name = reference.names.get(alias, alias)
        if name in reference.packed:
            continue
        if name not in reference.change or tensor.shape != reference.change[name].shape:
            engine = session.strategy.engine.name
            raise RankError(
                f"{engine} names a parameter {alias} of shape {list(tensor.shape)}, but the model has no such one. "
                "An engine that shards or renames parameters defines whole_parameters (rank/trainer.py)."
            )
        change = _on_host(tensor) - reference.before[name]
        expected = reference.change[name]
        own[name] = _norm(change), _norm(expected), _norm(change - expected)
    covered = torch.tensor([float(name in own) for name in reference.change])
    if lost := [name for name, seen in zip(reference.change, _most(session, covered), strict=True) if not seen]:
        raise RankError(f"No rank has the parameter {lost[0]}, nor {len(lost) - 1} others, so its update is unknown.")
    update, expected, difference = (sum(norms[i] ** 2 for norms in own.values()) ** 0.5 for i in range(3))
    # A stage may have nothing to train. Then it must change nothing, by the measure of the whole model.
    whole = expected or sum(_norm(change) ** 2 for change in reference.change.values()) ** 0.5
    if not whole:
        raise RankError("One step of the reference changes no parameter, so the update cannot be compared with it.")
    worst = sorted(own, key=lambda name: -own[name][2])[:NAMED]
    most = {name: round(1e6 * own[name][2] / (own[name][1] or whole)) for name in worst}
    return ReferenceUpdate(update / LEARNING_RATE, difference / whole, most)


def proportional(make: MakeOptimizer, own: bool = True) -> MakeOptimizer:
    """The optimizer with an update that is proportional to the gradient: Adam with an epsilon of 1, or else SGD. If not
    its ``own`` class, then torch's.
    """

    def made(parameters: Any, learning_rate: float) -> Any:
        import torch

        parameters = list(parameters)
        # An optimizer writes its options into the groups that it is given, and another one would take them over.
        groups = [dict(parameter) if isinstance(parameter, dict) else parameter for parameter in parameters]
        optimizer = make(parameters, learning_rate)
        if not _is_adam(optimizer):
            return torch.optim.SGD(groups, lr=learning_rate)
        if not own:
            return torch.optim.AdamW(groups, lr=learning_rate, eps=EPSILON, weight_decay=DECAY)
        for group in optimizer.param_groups:
            group.update(eps=EPSILON, weight_decay=DECAY)
        return optimizer

    return made


def _is_adam(optimizer: Any) -> bool:
    return any(ADAMS.fullmatch(kind.__name__) for kind in type(optimizer).__mro__)


def _has_room(session: Session) -> bool:
    """Whether the device has room for another training: DeepSpeed and transformers' Trainer keep parts of the first."""
    import torch

    if session.job.device == "cpu":
        return True
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info()
    return free >= torch.cuda.max_memory_allocated()


def _most(session: Session, numbers: Tensor) -> list[float]:
    """The largest of all ranks' numbers, one by one."""
    import torch.distributed as dist

    numbers = numbers.to(session.device)
    if session.world_size > 1:
        dist.all_reduce(numbers, dist.ReduceOp.MAX)
    known: list[float] = numbers.tolist()
    return known


def _on_host(tensor: Tensor) -> Tensor:
    import torch

    return tensor.detach().to("cpu", torch.float32)


def _norm(tensor: Tensor) -> float:
    import torch

    return float(torch.linalg.vector_norm(tensor, dtype=torch.float64))
