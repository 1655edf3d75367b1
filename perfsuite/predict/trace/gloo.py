"""What gloo's collectives allocate besides their arguments (torch/csrc/distributed/c10d/ProcessGroupGloo.cpp)."""

import functools
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

# Operator → the argument that is copied as a whole: gathered into one flat tensor, or reduced in a clone.
COPIES = {"allgather_": 0, "_allgather_base_": 0, "reduce_scatter_": 1, "_reduce_scatter_base_": 1}


def collectives_copy(recorder: Any) -> None:
    """Tensors that are gathered or scattered exist twice while gloo works on them."""
    for name, place in COPIES.items():
        recorder.rules[getattr(torch.ops.c10d, name).default] = functools.partial(_copying, place)


def _copying(place: int, recorder: Any, func: Any, args: Any, kwargs: Any) -> Any:
    out = func(*args, **kwargs)
    tensors = (leaf for leaf in tree_leaves(args[place]) if isinstance(leaf, torch.Tensor))
    recorder.scratch(sum(one.numel() * one.element_size() for one in tensors), str(func))
    return out
