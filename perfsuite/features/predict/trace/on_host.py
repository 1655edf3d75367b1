"""Distinguishes the host's memory from the device's.

Fake tensors are all on a CPU. If a cell is on CUDA, the device is "cpu:0" and the host "cpu", which torch treats as two
devices. So libraries really move tensors, an operator on tensors of both fails as it would with a GPU, and what a
library leaves on the host, such as AdamW its counters of steps, is not counted on the device.
"""

import contextlib
import importlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from perfsuite.rank.session import Session

DEVICE = torch.device("cpu", 0)


def on_host(tensor: torch.Tensor) -> bool:
    """Whether a tensor is in the host's memory, in a trace that distinguishes it."""
    return tensor.device.index is None


def literals_reach_the_device(recorder: Any) -> AbstractContextManager[Any]:
    """``torch.tensor`` and ``torch.as_tensor`` make a real tensor and pass it to the fake mode, which finds it on
    "cpu".
    """

    def reaching(plain: Any) -> Any:
        def make(data: Any, *arguments: Any, device: Any = None, **options: Any) -> torch.Tensor:
            made: torch.Tensor = plain(data, *arguments, device=device, **options)
            if plain is as_tensor and isinstance(data, torch.Tensor):
                return made
            return made.to(torch.device(device) if device is not None else torch.get_default_device())

        return make

    as_tensor = torch.as_tensor
    return mock.patch.multiple(torch, tensor=reaching(torch.tensor), as_tensor=reaching(as_tensor))


def literals_have_no_values(recorder: Any) -> AbstractContextManager[Any]:
    """The fake mode remembers the value of a single number, such as the label of one sample, and computes with it. A
    real tensor is on "cpu" wherever it is moved, so none is remembered (predict/trace/values.py has what decides).
    """
    return mock.patch.object(FakeTensorMode, "may_turn_const", lambda *_: False)


@contextlib.contextmanager
def hosts_step_one_by_one(recorder: Any) -> Iterator[None]:
    """torch's optimizers step all parameters with one operator only on devices (cuda.optimizers_step_at_once)."""
    from torch.optim.optimizer import _default_to_fused_or_foreach

    def unless_on_host(params: list[torch.Tensor], *arguments: Any, **options: Any) -> tuple[bool, bool]:
        if any(on_host(param) for param in params):
            return False, False
        return _default_to_fused_or_foreach(params, *arguments, **options)

    with contextlib.ExitStack() as stack:
        for module in map(importlib.import_module, ("torch.optim.adam", "torch.optim.sgd")):
            stack.enter_context(mock.patch.object(module, "_default_to_fused_or_foreach", unless_on_host))
        yield


def host_is_apart(recorder: Any) -> AbstractContextManager[Any]:
    """perfsuite builds on the device."""
    recorder.on_host = on_host
    return mock.patch.object(Session, "device", DEVICE)


def fsdp_builds_on_the_device(recorder: Any) -> AbstractContextManager[Any]:
    """As perfsuite does."""
    from torch.distributed.fsdp._fully_shard import _fully_shard

    return mock.patch.object(_fully_shard, "_get_device_from_mesh", lambda _: DEVICE)


def fsdp1_computes_on_the_device(recorder: Any) -> AbstractContextManager[Any]:
    """It takes the current device of torch.cpu, which has no index."""
    from torch.distributed.fsdp import _init_utils

    return mock.patch.object(_init_utils, "_get_compute_device", lambda *_: DEVICE)


def accelerate_prepares_on_the_device(recorder: Any) -> AbstractContextManager[Any]:
    """Otherwise its ``prepare`` would move the model to the host."""
    from accelerate import Accelerator

    return mock.patch.object(Accelerator, "device", DEVICE)


@contextlib.contextmanager
def accelerator_is_apart(recorder: Any) -> Iterator[None]:
    """DeepSpeed asks its accelerator for the device's name and whether a tensor is on it. A mesh is of all devices of a
    kind.
    """
    from deepspeed.accelerator import get_accelerator
    from torch.distributed import device_mesh

    make: Any = device_mesh.init_device_mesh
    with (
        mock.patch.object(device_mesh, "init_device_mesh", lambda _, *args, **more: make(DEVICE.type, *args, **more)),
        mock.patch.multiple(
            type(get_accelerator()),
            current_device_name=lambda *_: str(DEVICE),
            device_name=lambda *_: str(DEVICE),
            on_accelerator=lambda _, tensor: not on_host(tensor),
        ),
    ):
        yield


PATCHES = (host_is_apart, literals_reach_the_device, literals_have_no_values, hosts_step_one_by_one)
