"""Lets megatron-core train on a CPU with gloo: its modules ask for CUDA, and these answers are the CPU's.

Only the modules of megatron-core get them, by a ``torch`` of their own. Tensors are asked for their type in one place
that every module shares, so ``answering`` is around what does so. On CUDA nothing of this file runs.
"""

import contextlib
import logging
import sys
import types
from collections.abc import Iterator
from importlib import metadata
from typing import Any
from unittest import mock

from perfsuite.errors import Unsupported
from perfsuite.rank.torch_types import TorchDevice

RELEASE = "0.16.1"  # whose calls were read
CREATORS = ("empty", "full", "ones", "rand", "randn", "tensor", "zeros")


def install(device: TorchDevice) -> None:
    """Let the modules of megatron-core compute on the device. Raises Unsupported for another release."""
    release = metadata.version("megatron-core")
    if release != RELEASE:
        raise Unsupported(
            f"megatron-core {release} cannot run on a CPU: perfsuite knows which calls {RELEASE} makes to CUDA."
        )
    import torch
    from megatron.core.tensor_parallel import layers, random

    ours = _torch(device)
    for name, module in list(sys.modules.items()):
        if name.startswith("megatron.core") and getattr(module, "torch", None) is torch:
            module.torch = ours  # type: ignore[attr-defined]
    # Backward's collectives run beside products. gloo copies what it sends, in a thread of its own: whether a copy is
    # there at the peak would be chance.
    if torch.distributed.get_backend() == "gloo":
        for name in ("dist_all_gather_func", "dist_reduce_scatter_func"):
            setattr(layers, name, _at_once(getattr(layers, name)))
    # A state of CUDA's generator is set by a callback that waits for CUDA.
    logging.getLogger(random.__name__).setLevel(logging.ERROR)  # it warns of what follows
    random._get_cuda_rng_state = lambda *_, **__: torch.get_rng_state()
    random._set_cuda_rng_state = lambda state, *_, **__: torch.set_rng_state(state)


@contextlib.contextmanager
def answering() -> Iterator[None]:
    """Tensors name CUDA's type, which the optimizers compare, and stay where they are."""
    import torch

    plain: Any = torch.Tensor.type

    def kind(tensor: Any, *arguments: Any, **options: Any) -> Any:
        name = plain(tensor, *arguments, **options)
        return name if arguments or options else name.replace("torch.", "torch.cuda.")

    with mock.patch.object(torch.Tensor, "type", kind), mock.patch.object(torch.Tensor, "cuda", lambda one: one):
        yield


class _Done:
    """The handle of a collective that has ended."""

    def wait(self) -> None:
        pass


def _at_once(collective: Any) -> Any:
    """The collective, which has ended when it returns."""

    def run(*arguments: Any, async_op: bool = False, **options: Any) -> _Done:
        collective(*arguments, **options)
        return _Done()

    return run


def _torch(device: TorchDevice) -> types.ModuleType:
    """torch, with another device than CUDA's."""
    import torch

    def on_cpu(create: Any) -> Any:
        def created(*arguments: Any, **options: Any) -> Any:
            if str(options.get("device")).startswith("cuda"):
                options["device"] = device
            return create(*arguments, **options)

        return created

    cuda = _copy(
        torch.cuda,
        current_device=lambda: device,
        synchronize=lambda *_: None,
        get_rng_state=lambda *_: torch.get_rng_state(),
        set_rng_state=lambda state, *_: torch.set_rng_state(state),
        manual_seed=torch.manual_seed,
    )
    return _copy(torch, cuda=cuda, **{name: on_cpu(getattr(torch, name)) for name in CREATORS})


def _copy(module: types.ModuleType, **other: Any) -> types.ModuleType:
    """A module with the same names, except for some."""
    copy = types.ModuleType(module.__name__)
    vars(copy).update(vars(module) | other)
    return copy
