"""Every private name of torch and transformers that perfsuite uses, why, and which releases have it.

perfsuite uses none of DeepSpeed or accelerate.

A library may drop a private name in any release. tests/rank/test_compat.py finds the names that the code uses, holds
them to these lists and looks each one up in the installed releases. So a private name that is not listed here fails a
test, and one that a release has dropped is named before a cell needs it. A cell that needs it is unsupported, with the
releases that have the name.
"""

import pkgutil
import re
from importlib import metadata
from typing import NamedTuple

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from perfsuite.errors import Unsupported

# The oldest and the newest release whose Python files and stubs were searched for every name.
SEARCHED = {"torch": ("2.6", "2.15"), "transformers": ("4.44", "5.23")}


class Private(NamedTuple):
    """What a name is for, the first release that has it and the first that has it no more; empty: all that were
    searched have it.
    """

    why: str
    since: str = ""
    until: str = ""


# Importable names, up to the last private part.
NAMES = {
    "torch._C.DispatchKey": Private("the guard below takes sets of them"),
    "torch._C.DispatchKeySet": Private("the guard below takes sets of them"),
    "torch._C._ExcludeDispatchKeyGuard": Private("calls an operator of CUDA's autocast list without autocast"),
    "torch._C._autograd._get_sequence_nr": Private("the number that autograd gives the next node"),
    "torch._C._current_autograd_node": Private("which node's backward runs"),
    "torch._C._ensureCUDADeviceGuardSet": Private("a fake mode in a CUDA build without GPUs"),
    "torch._C._get_mkldnn_enabled": Private("a switch of torch that changes times"),
    "torch._C._storage_Use_Count": Private("whether anybody else keeps a storage"),
    "torch._dynamo": Private("what optimizers import in their first step, imported once in the rank server"),
    "torch._foreach_mul_": Private("clips all gradients in one operator, as torch.nn.utils does"),
    "torch._subclasses.fake_tensor": Private("fake tensors: models without memory, and all of trace/"),
    "torch.Tensor._make_subclass": Private("a fake tensor without its constructor, in a trace"),
    "torch.amp.GradScaler._found_inf_per_device": Private("whether fp16 gradients overflowed, without a wait"),
    "torch.autograd.Variable._execution_engine": Private("waits for DDP's messages when backward ends, in a trace"),
    "torch.autograd._get_sequence_nr": Private("the number that autograd gives the next node, in a trace"),
    "torch.autograd._profiler_enabled": Private("a switch of torch that changes times"),
    "torch.cuda._initialized": Private("a script's first use of CUDA"),
    "torch.cuda._lazy_call": Private("a script's first use of CUDA"),
    "torch.cuda._is_in_bad_fork": Private("whether the rank server touched CUDA before it forked"),
    "torch.utils.data.dataloader._BaseDataLoaderIter": Private("when a script's data is made"),
    "torch.cuda.memory._record_memory_history": Private("the history of CUDA's allocator"),
    "torch.cuda.memory._snapshot": Private("the history of CUDA's allocator"),
    "torch.distributed._compute_bucket_assignment_by_size": Private("DDP's buckets, in a timed trace"),
    "torch.distributed.distributed_c10d._resolve_process_group": Private("who takes part in a message, in a trace"),
    "torch.distributed.fsdp._fully_shard._fully_shard._get_device_from_mesh": Private(
        "the device of FSDP2, in a trace"
    ),
    "torch.distributed.fsdp._init_utils._get_compute_device": Private("the device of FSDP1, in a trace"),
    "torch.distributed.pipelining.schedules._batch_p2p": Private(
        "sends keep their tensors until they are done, in a trace"
    ),
    "torch.distributed.pipelining.stage.PipelineStage._warmup_backward_result": Private(
        "stages vote on shapes, in a trace", since="2.12", until="2.15"
    ),
    "torch.distributed.pipelining.stage.PipelineStage._warmup_forward_vote": Private(
        "stages vote on shapes, in a trace", since="2.12", until="2.15"
    ),
    "torch.distributed.tensor._sharding_prop.ShardingPropagator._propagate_tensor_meta_non_cached": Private(
        "DTensor's fakes are no rank's, in a trace"
    ),
    "torch.library._scoped_library": Private("operators for the time of one trace"),
    "torch.nn.Module._apply": Private("moves of modules keep their parameters, in a trace"),
    "torch.optim.adam._default_to_fused_or_foreach": Private("steps of the host go tensor by tensor, in a trace"),
    "torch.optim.optimizer._default_to_fused_or_foreach": Private("steps of the host go tensor by tensor, in a trace"),
    "torch.optim.optimizer._get_foreach_kernels_supported_devices": Private(
        "steps of CUDA take all tensors, in a trace"
    ),
    "torch.optim.sgd._default_to_fused_or_foreach": Private("steps of the host go tensor by tensor, in a trace"),
    "torch.testing._internal.distributed.fake_pg.FakeStore": Private("a process group of one rank of many, in a trace"),
    "torch.utils._foreach_utils": Private("steps take many tensors at once, in a trace"),
    "torch.utils._foreach_utils._foreach_supported_types": Private("steps take many tensors at once, in a trace"),
    "torch.utils._python_dispatch.TorchDispatchMode": Private("counts and records operators"),
    "torch.utils._pytree.tree_leaves": Private("the tensors among an operator's arguments"),
    "torch.utils._pytree.tree_map": Private("moves a model's own batches, whatever their structure"),
    "torch.utils._pytree.tree_map_only": Private("the tensors among an operator's arguments"),
    "transformers.PreTrainedModel._from_config": Private("a model of a config in the dtype that is asked for"),
}

# Operators, by namespace and name. torch does not document them as stable.
OPERATORS = {
    "_c10d_functional.wait_tensor": Private("the end of a collective"),
    "aten._amp_foreach_non_finite_check_and_unscale_": Private("fp16 overflows, in a trace"),
    "aten._foreach_copy_": Private("copies of many tensors, in a timed trace"),
    "aten._foreach_norm": Private("CUDA's partial sums, in a trace"),
    "aten._foreach_zero_": Private("writes of many tensors, in a timed trace"),
    "aten._local_scalar_dense": Private("reads a value: a wait for the device"),
    "aten._log_softmax": Private("CUDA's softmax, in a trace"),
    "aten._log_softmax_backward_data": Private("CUDA's softmax, in a trace"),
    "aten._safe_softmax": Private("copies of oneDNN, in a trace"),
    "aten._scaled_dot_product_cudnn_attention": Private("CUDA's fused attention"),
    "aten._scaled_dot_product_cudnn_attention_backward": Private("CUDA's fused attention"),
    "aten._scaled_dot_product_efficient_attention": Private("CUDA's fused attention"),
    "aten._scaled_dot_product_efficient_attention_backward": Private("CUDA's fused attention"),
    "aten._scaled_dot_product_flash_attention": Private("CUDA's fused attention"),
    "aten._scaled_dot_product_flash_attention_backward": Private("CUDA's fused attention"),
    "aten._scaled_dot_product_flash_attention_for_cpu": Private("the CPU's fused attention"),
    "aten._scaled_dot_product_flash_attention_for_cpu_backward": Private("the CPU's fused attention"),
    "aten._softmax": Private("CUDA's softmax, in a trace"),
    "aten._softmax_backward_data": Private("CUDA's softmax, in a trace"),
    "aten._to_copy": Private("copies of oneDNN, in a trace"),
    "mkldnn._is_mkldnn_bf16_supported": Private("which kernels the CPU has"),
    "mkldnn._is_mkldnn_fp16_supported": Private("which kernels the CPU has"),
}

# Attributes of objects: an object has to be made to see whether a release has them.
ATTRIBUTES = {
    "_attn_implementation": Private("transformers' config: the attention kernel"),
    "_buffers": Private("torch.nn.Module: replaced when a module moves, in a trace"),
    "_cdata": Private("torch.UntypedStorage: its address, which names it"),
    "_compiled_call_impl": Private("torch.nn.Module: whether torch.compile has compiled it"),
    "_dispatch_impl": Private("FakeTensorMode: called for what its cache does not have, in a trace"),
    "_handle": Private("FSDP1's flat parameter"),
    "_local_shard": Private("FSDP1's flat parameter: this rank's part"),
    "_local_tensor": Private("DTensor: this rank's part"),
    "_no_split_modules": Private("transformers' models: the classes of their blocks"),
    "_opname": Private("an operator's name without its overload"),
    "_parameters": Private("torch.nn.Module: replaced when a module moves, in a trace"),
    "_resolve_parallel_plans": Private(
        "transformers' models: the tensor-parallel plan, its wildcards replaced", since="5.23"
    ),
    "_saved_grad_shard": Private("FSDP1's flat parameter: its gradient"),
    "_schema": Private("an operator's arguments"),
    "_sequence_nr": Private("a node of autograd: its number"),
    "_type": Private("torch.ScriptObject: whether it is a process group, in a trace"),
    "_use_count": Private("torch.Tensor: how many hands hold it, in a trace"),
    "_user_meta": Private("a pipeline stage: the shapes of what it receives", since="2.12"),
}


def is_there(path: str) -> bool:
    """Whether the installed releases have what is imported or found by that path."""
    try:
        pkgutil.resolve_name(path)
    except (AttributeError, ImportError):  # transformers imports its parts when they are asked for
        return False
    return True


def lacking(error: BaseException) -> Unsupported | None:
    """What the error is if an installed release lacks a private name; None if it is another error."""
    if not isinstance(error, AttributeError | ImportError):
        return None
    if isinstance(error, AttributeError) and error.name in ATTRIBUTES:
        entry, library = ATTRIBUTES[error.name], type(error.obj).__module__.partition(".")[0]
        return _lacking(library, error.name, entry) if library in SEARCHED and not _in_range(library, entry) else None
    said = set(re.findall(r"\w+", str(error)))
    for path, entry in (NAMES | {f"torch.ops.{name}": entry for name, entry in OPERATORS.items()}).items():
        library, name = path.partition(".")[0], path.rpartition(".")[2]
        module = isinstance(error, ImportError) and error.name and f"{path}.".startswith(f"{error.name}.")
        if (module or name in said) and not is_there(path) and is_there(library):
            return _lacking(library, path, entry)
    return None


def _lacking(library: str, path: str, entry: Private) -> Unsupported:
    release, has_it = metadata.version(library), f"{library}{_range(library, entry)}"
    return Unsupported(f"{library} {release} has no {path} ({entry.why}): {has_it} has it.")


def _range(library: str, entry: Private) -> str:
    oldest, newest = SEARCHED[library]
    return f">={entry.since or oldest}," + (f"<{entry.until}" if entry.until else f"<={newest}")


def _in_range(library: str, entry: Private) -> bool:
    """Whether the installed release should have it; then an object without it is another error."""
    minor = ".".join(map(str, Version(metadata.version(library)).release[:2]))
    return SpecifierSet(_range(library, entry)).contains(minor)
