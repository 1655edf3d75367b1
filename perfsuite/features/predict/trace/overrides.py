"""All differences between a trace and a run, as lists: each is a function of its own that explains it."""

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import torch

from perfsuite.errors import Unsupported
from perfsuite.features.predict.trace import attention_kernels as attention
from perfsuite.features.predict.trace import autograd, chunked_loss, cuda, distributed, streams, values
from perfsuite.features.predict.trace import kernel_scratch as kernels
from perfsuite.features.predict.trace import on_host as host
from perfsuite.features.predict.trace_records import TraceJob
from perfsuite.rank.compat import lacking
from perfsuite.rank.forked import reason_of
from perfsuite.rank.session import Session

Patch = Callable[[Any], AbstractContextManager[Any] | None]  # of a recorder; None: it sets rules alone
AMPERE = 8.0  # the compute capability from which on torch has its flash kernel


def transformers_sees_tensors(recorder: Any) -> AbstractContextManager[Any]:
    """transformers mistakes a fake tensor for torch.export and builds masks that a run does not. Version 4 did not
    check.
    """
    from transformers.utils import import_utils

    return mock.patch.object(import_utils, "is_fake_tensor", lambda *_: False, create=True)


def cuda_has_no_device(recorder: Any) -> AbstractContextManager[Any]:
    """In a CUDA build without visible GPUs a fake mode pretends that there is one. Autograd then starts a thread for
    it, after which no fork can compute gradients (__main__.learn).
    """
    return mock.patch.object(torch._C, "_ensureCUDADeviceGuardSet", lambda: None, create=True)


def operators_have_rules(recorder: Any) -> None:
    """Operators that a recorder treats otherwise than fake tensors do."""
    aten = torch.ops.aten
    recorder.rules |= {
        aten._local_scalar_dense.default: values.item,
        aten.equal.default: values.equal,
        aten.add.Tensor: autograd.add,
        aten._safe_softmax.default: kernels.safe_softmax,
        aten._grouped_mm.default: kernels.grouped,
    }


EVERYWHERE: tuple[Patch, ...] = (
    operators_have_rules,
    cuda_has_no_device,
    transformers_sees_tensors,
    autograd.modules_keep_parameters,
    autograd.storages_resize,
    autograd.many_tensors_at_once,
    attention.scores_take_the_mask,
    chunked_loss.chunks_have_buffers,
    distributed.buckets_reduce_alone,
    distributed.lists_are_sent_one_by_one,
    distributed.meshes_are_real,
    distributed.objects_are_alike,
)
PIPELINES: tuple[Patch, ...] = (distributed.sends_hold_tensors, distributed.stages_agree)
CPU: tuple[Patch, ...] = (
    autograd.random_states_count,
    distributed.collectives_copy,
    kernels.matmuls_repack,
    kernels.elementwise_kernels_convert,
    kernels.layer_norms_sum,
)
CUDA: tuple[Patch, ...] = (*cuda.PATCHES, chunked_loss.chunks_are_of_cuda, streams.streams_have_pools)


def patches(job: TraceJob, session: Session) -> Iterable[Patch]:
    """The patches that the cell needs. A release that lacks a name for one of them can trace all other cells."""
    yield from EVERYWHERE
    engine = session.strategy.engine
    dtensors = engine.keeps == "dtensors" or session.layout.tensor > 1
    if dtensors:
        yield distributed.dtensors_plan_apart
    if engine.dimension == "pipeline":
        yield from PIPELINES
    if job.timed:
        yield distributed.buckets_are_cut
    if session.recipe.loss_scaling:
        yield values.scales_do_not_overflow
    if job.job.device != "cpu":
        yield from host.PATCHES
    yield from CPU if job.job.device == "cpu" else CUDA
    if job.job.device == "cpu" and session.recipe.float8:
        yield kernels.float8_converts
    if job.job.device != "cpu":  # AMD's devices have no capability; torch's ROCm build has both fused kernels for them
        newest = job.capability is None or job.capability >= AMPERE
        yield functools.partial(attention.cuda_kernels, newest=newest, capability=job.capability)
        if dtensors:
            yield host.fsdp_builds_on_the_device
        if engine.finds_device:
            yield host.fsdp1_computes_on_the_device
        if any("accelerate" in choice.technique.packages for choice in session.strategy.choices):
            yield host.accelerate_prepares_on_the_device
    yield from of_libraries(job, session.strategy.packages)


def of_libraries(job: TraceJob, packages: tuple[str, ...]) -> Iterable[Patch]:
    """The patches of the strategy's libraries."""
    if "bitsandbytes" in packages and job.job.device != "cpu":
        from perfsuite.features.predict.trace import fake_bitsandbytes

        yield from fake_bitsandbytes.PATCHES
    if "megatron-core" in packages:
        from perfsuite.features.predict.trace import fake_megatron as megatron

        yield from megatron.PATCHES
    if "deepspeed" in packages:
        from perfsuite.features.predict.trace import fake_deepspeed as deepspeed

        yield from deepspeed.PATCHES
        if job.job.device != "cpu":
            yield deepspeed.devices_have_half_precision
            yield deepspeed.devices_have_streams
            yield host.accelerator_is_apart


@contextlib.contextmanager
def applied(recorder: Any, job: TraceJob, session: Session) -> Iterator[None]:
    """Inside, the libraries treat fake tensors like those of a run."""
    with contextlib.ExitStack() as stack:
        for patch in patches(job, session):
            try:
                stack.enter_context(patch(recorder) or contextlib.nullcontext())
            except (AttributeError, ImportError) as error:
                raise lacking(error) or Unsupported(
                    f"These releases cannot be traced: {reason_of(error)}. Measure the cell in a run instead."
                ) from error
        yield
