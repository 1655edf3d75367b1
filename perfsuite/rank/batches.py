"""Deterministic synthetic batches, by the functions that a definition names: those of its task, or its own.

Sample ``i`` of step ``s`` depends only on (seed, s, i), so one rank with a micro-batch of four, two ranks with two
each, and two accumulated micro-batches of two all see the same global batch.
"""

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from perfsuite.catalog.definitions import Model, Workload
from perfsuite.catalog.processes import WITH_WEIGHTS
from perfsuite.errors import RankError
from perfsuite.rank.functions import function_of, load_function, named, place_of
from perfsuite.rank.session import Session
from perfsuite.rank.torch_types import Module, Tensor

Make = Callable[[Model, Sequence[int]], Any]


@dataclass(frozen=True)
class MicroBatch:
    """What one forward gets, in any structure, and the weight that makes the mean of all losses the global mean.

    ``weight`` = items here · micro-batches of the step in all ranks / items of the step in all ranks. Ranks have
    different numbers of labels (padding), so a mean of means would depend on how the samples are divided.
    """

    inputs: object
    weight: float
    session: Session

    @property
    def named(self) -> dict[str, Tensor]:
        """The inputs by their names, as the batches of tasks have them: of shape [samples, …]."""
        assert isinstance(self.inputs, dict)
        return self.inputs

    def loss(self, module: Module) -> Tensor:
        """Call the module, and return the mean of its losses. Raises RankError unless it is one number of torch's, with
        a gradient if there is one.
        """
        import torch

        loss = function_of(self.session, "loss")(module, self.inputs)
        if isinstance(loss, torch.Tensor) and loss.dim() == 0 and loss.requires_grad >= torch.is_grad_enabled():
            return loss
        kind = f"a tensor of shape {list(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__
        if kind == "a tensor of shape []":
            kind += " without a gradient, so that nothing would be trained"
        need = "It must return a tensor of no dimensions, the mean over the items, computed from the model's output."
        raise RankError(f"{place_of(self.session, 'loss')} returned {kind}. {need}")


def loss_of_output(module: Module, inputs: Any) -> Any:
    """The loss that the model itself computes, as those of transformers do. A dict's entries are given as keywords, and
    those of a tuple or list as arguments.
    """
    if isinstance(inputs, dict):
        output = module(**inputs)
    else:
        output = module(*inputs) if isinstance(inputs, tuple | list) else module(inputs)
    if not hasattr(output, "loss"):
        raise RankError(
            f"{type(module).__name__} returns {type(output).__name__}, which has no .loss: give the definition a "
            'loss="package.module:function", called with the model and its inputs.'
        )
    return output.loss


def make_batch(session: Session, step: int) -> list[MicroBatch]:
    """This rank's micro-batches of one optimizer step, on its device.

    Global micro-batch ``m · data_ranks + data_rank`` is this rank's micro-batch ``m``; each has
    ``workload.micro_batch`` consecutive samples. Ranks that share a replica (pipeline, tensor parallel) get the same.
    Without ``items`` the micro-batches count alike, and a rank makes only its own.
    """
    model, size, ranks = definition_of(session), session.job.workload.micro_batch, session.layout.data_ranks
    seeds = seeds_of(session, step)
    every = [seeds[begin : begin + size] for begin in range(0, len(seeds), size)]
    make, count = _functions(session, model)
    mine, items = [], []
    for number, one in enumerate(every):
        own = number % ranks == session.data_rank
        if not own and not count:
            continue
        with named(session, "batch"):
            inputs = make(model, one)
        if own:
            mine.append((number, moved(session, inputs)))
        if count:
            with named(session, "items"):
                items.append(int(count(inputs)))
    weights = [item * len(every) / sum(items) for item in items] or [1.0] * len(every)
    return [MicroBatch(inputs, weights[number], session) for number, inputs in mine]


def definition_of(session: Session, **workload: int) -> Model:
    """The model's definition with the cell's own workload."""
    return dataclasses.replace(session.job.model, workload=dataclasses.replace(session.job.workload, **workload))


def seeds_of(session: Session, step: int) -> list[int]:
    """Those of the samples of all ranks for one optimizer step, in the order of the global micro-batches."""
    recipe = session.recipe
    count = recipe.accumulation * session.layout.data_ranks * session.job.workload.micro_batch
    return [seed_of(session.job.seed, 0 if recipe.same_batch else step, index) for index in range(count)]


def seed_of(seed: int, step: int, index: int) -> int:
    """A number of 64 bits, from which a sample is drawn."""
    digest = hashlib.sha256(f"{seed}/{step}/{index}".encode()).digest()
    return int.from_bytes(digest[:8], "little")


def _functions(session: Session, model: Model) -> tuple[Make, Callable[[Any], Any] | None]:
    """What makes a micro-batch and, if it is not the same for all, what counts the items of its loss."""
    if task := WITH_WEIGHTS.get(model.task):
        recipe = session.recipe
        make = functools.partial(load_function(task.batch), padded=recipe.padded, packed=recipe.packed)
        return make, load_function(task.items)
    return function_of(session, "batch"), function_of(session, "items") if model.items else None


def moved(session: Session, inputs: Any) -> Any:
    """The same structure on the rank's device, with arrays as tensors. Raises RankError if it has none.

    An engine that keeps the model in half precision gets its floats in it, as transformers' Trainer gives them to
    DeepSpeed: nothing else would cast them.
    """
    import numpy
    import torch
    from torch.utils._pytree import tree_map

    half = session.recipe.pure or session.strategy.engine.casts
    dtype, found = session.compute_dtype, 0

    def move(leaf: Any) -> Any:
        nonlocal found
        if isinstance(leaf, numpy.ndarray):
            leaf = torch.tensor(leaf, device=session.device)
        if hasattr(leaf, "to"):  # also what moves its own tensors, as a PackedSequence does
            found += 1
            floats = isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
            return leaf.to(session.device, **({"dtype": dtype} if half and floats else {}))
        if dataclasses.is_dataclass(leaf) and not isinstance(leaf, type):
            names = [field.name for field in dataclasses.fields(leaf)]
            return dataclasses.replace(leaf, **{name: whole(getattr(leaf, name)) for name in names})
        return leaf

    def whole(structure: Any) -> Any:
        return tree_map(move, structure, is_leaf=lambda one: hasattr(one, "to"))

    there = whole(inputs)
    if not found:
        kind = type(inputs).__name__
        need = "It must return tensors or arrays, in a dict, a tuple or any other structure."
        raise RankError(f"{place_of(session, 'batch')} returned {kind} without a tensor. {need}")
    return there


def positions(workload: Workload) -> int:
    """Token positions, padding included, that one micro-batch carries through encoder and decoder."""
    return workload.micro_batch * (workload.sequence_length + (workload.target_length or 0))
