"""What gloo's collectives allocate beside their arguments, by torch/csrc/distributed/c10d/ProcessGroupGloo.cpp."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_leaves


def size(tensors: Any) -> int:
    return sum(leaf.numel() * leaf.element_size() for leaf in tree_leaves(tensors) if isinstance(leaf, torch.Tensor))


@contextlib.contextmanager
def collectives_copy(recorder: Any) -> Iterator[None]:
    recorder.rules.update({op: rule for op, rule in _rules()})
    yield


def _rules() -> Iterator[tuple[Any, Any]]:
    for packet in dir(torch.ops.c10d):
        pass
    for name, place in (("_allgather_base_", 0), ("_reduce_scatter_base_", 1)):
        yield getattr(torch.ops.c10d, name).default, _copying(place)


def _copying(place: int) -> Any:
    def rule(recorder: Any, func: Any, args: Any, kwargs: Any) -> Any:
        out = func(*args, **kwargs)
        recorder.scratch(size(args[place]), str(func))
        return out

    return rule
