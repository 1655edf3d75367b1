"""What DeepSpeed does that a rank without siblings, or without data, cannot."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

WHERE = (
    "deepspeed.runtime.zero.stage3",
    "deepspeed.runtime.zero.partition_parameters",
    "deepspeed.runtime.zero.partitioned_param_coordinator",
)


@contextlib.contextmanager
def ranks_agree(recorder: Any) -> Iterator[None]:
    """Stage 3 asserts that all ranks gather the same parameters: there is nobody to ask."""
    with contextlib.ExitStack() as stack:
        for name in WHERE:
            module = importlib.import_module(name)
            stack.enter_context(mock.patch.object(module, "assert_ints_same_as_other_ranks", lambda ints: None))
        yield


@contextlib.contextmanager
def first_rank_is_alike(recorder: Any) -> Iterator[None]:
    """AutoTP has the first rank tell all others which inputs it was given, by pickling them. They are given the same."""
    import torch.distributed as dist

    with mock.patch.object(dist, "broadcast_object_list", lambda object_list, *_, **__: None):
        yield


@contextlib.contextmanager
def devices_are_large(recorder: Any) -> Iterator[None]:
    """Stages 1 and 2 flatten the parameters on the host where the device lacks room for a copy: what is free here, on
    the machine that traces, says nothing about the device.
    """
    from deepspeed.accelerator import get_accelerator

    with mock.patch.object(type(get_accelerator()), "available_memory", lambda *_: LARGE):
        yield


LARGE = 2**62
PATCHES = (ranks_agree, first_rank_is_alike, devices_are_large)
