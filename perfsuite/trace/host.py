"""Offload: distinguishes the host's memory from the device's.

Fake tensors are all on a CPU. If a cell offloads, the device is "cpu:0" and the host "cpu", which torch treats as two
devices. So libraries really move tensors, and an operator on tensors of both fails as it would with a GPU.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import torch

from perfsuite.rank.session import Session

MOVES = {"offload_optimizer", "offload_parameters", "around"}  # fields of a recipe that move tensors to the host
DEVICE = torch.device("cpu", 0)


def on_host(tensor: torch.Tensor) -> bool:
    """Whether a tensor is in the host's memory, in a trace that distinguishes it."""
    return tensor.device.index is None


def literals_reach_the_device(recorder: Any) -> AbstractContextManager[Any]:
    """``torch.tensor`` makes a real tensor and passes it to the fake mode, which finds it on "cpu"."""
    plain: Any = torch.tensor

    def tensor(*arguments: Any, device: Any = None, **options: Any) -> torch.Tensor:
        made: torch.Tensor = plain(*arguments, device=device, **options)
        return made.to(torch.device(device) if device is not None else torch.get_default_device())

    return mock.patch.object(torch, "tensor", tensor)


@contextlib.contextmanager
def hosts_step_one_by_one(recorder: Any) -> Iterator[None]:
    """torch's optimizers step all parameters with one operator only on devices (cuda.optimizers_step_at_once)."""
    from torch.optim.optimizer import _default_to_fused_or_foreach

    def unless_on_host(params: list[torch.Tensor], *arguments: Any, **options: Any) -> tuple[bool, bool]:
        if any(on_host(one) for one in params):
            return False, False
        return _default_to_fused_or_foreach(params, *arguments, **options)

    with contextlib.ExitStack() as stack:
        for module in map(importlib.import_module, ("torch.optim.adam", "torch.optim.sgd")):
            stack.enter_context(mock.patch.object(module, "_default_to_fused_or_foreach", unless_on_host))
        yield


def told_apart(recorder: Any) -> AbstractContextManager[Any]:
    """perfsuite builds on the device."""
    recorder.on_host = on_host
    return mock.patch.object(Session, "device", DEVICE)


def fsdp_builds_on_the_device(recorder: Any) -> AbstractContextManager[Any]:
    """As perfsuite does."""
    from torch.distributed.fsdp._fully_shard import _fully_shard

    return mock.patch.object(_fully_shard, "_get_device_from_mesh", lambda _: DEVICE)


def accelerator_is_apart(recorder: Any) -> AbstractContextManager[Any]:
    """DeepSpeed asks its accelerator for the device's name and whether a tensor is on it."""
    from deepspeed.accelerator import get_accelerator

    return mock.patch.multiple(
        type(get_accelerator()),
        current_device_name=lambda *_: str(DEVICE),
        device_name=lambda *_: str(DEVICE),
        on_accelerator=lambda _, tensor: not on_host(tensor),
    )


PATCHES = (told_apart, literals_reach_the_device, hosts_step_one_by_one)
