"""Everything in which a trace differs from a run, as a list: each is a function of its own that says why."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch

from perfsuite.training.trace import autograd, distributed, gloo, kernels, values


@contextlib.contextmanager
def transformers_sees_tensors(recorder: Any) -> Iterator[None]:
    """transformers takes a fake tensor for torch.export and builds masks that a run does not."""
    from transformers.utils import import_utils

    with mock.patch.object(import_utils, "is_fake_tensor", lambda tensor: False):
        yield


PATCHES = (
    transformers_sees_tensors,
    autograd.modules_keep_parameters,
    autograd.random_states_count,
    autograd.storages_resize,
    gloo.collectives_copy,
    kernels.matmuls_repack,
    kernels.elementwise_kernels_convert,
    distributed.dtensors_plan_apart,
    distributed.buckets_reduce_alone,
)
RULES = {
    torch.ops.aten._local_scalar_dense.default: values.item,
    torch.ops.aten.add.Tensor: autograd.accumulate,
    torch.ops.aten._safe_softmax.default: kernels.safe_softmax,
    torch.ops._c10d_functional.wait_tensor.default: distributed.wait,
    torch.ops.aten._amp_foreach_non_finite_check_and_unscale_.default: values.no_overflow,
}


@contextlib.contextmanager
def applied(recorder: Any, session: Any) -> Iterator[None]:
    """Inside, the libraries treat fake tensors as they treat those of a run."""
    recorder.rules.update(RULES)
    with contextlib.ExitStack() as stack:
        for patch in PATCHES:
            stack.enter_context(patch(recorder))
        if "deepspeed" in session.strategy.engine.preload:
            from perfsuite.training.trace import deepspeed

            for patch in deepspeed.PATCHES:
                stack.enter_context(patch(recorder))
        yield
