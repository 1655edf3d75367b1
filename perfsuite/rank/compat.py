"""Every private name of torch, transformers and DeepSpeed that perfsuite uses, and why.

A library may drop a private name in any release. tests/test_compat.py finds the names that the code uses, compares them
with these lists and looks each one up in the installed releases. So a private name that is not listed here fails a
test, and one that a release has dropped is named before a cell needs it.
"""

# Importable names, up to the last private part.
NAMES = {
    "torch._C.DispatchKey": "the guard below takes sets of them",
    "torch._C.DispatchKeySet": "the same",
    "torch._C._ExcludeDispatchKeyGuard": "calls an operator of CUDA's autocast list without autocast",
    "torch._C._autograd._get_sequence_nr": "the number that autograd gives the next node",
    "torch._C._current_autograd_node": "which node's backward runs",
    "torch._C._storage_Use_Count": "whether a storage has other references",
    "torch._foreach_mul_": "clips all gradients in one operator, as torch.nn.utils does",
    "torch._subclasses.fake_tensor": "fake tensors: models without memory, and all of trace/",
    "torch.amp.GradScaler._found_inf_per_device": "whether fp16 gradients overflowed, without a wait",
    "torch.autograd._get_sequence_nr": "the same number, in a trace",
    "torch.cuda._is_in_bad_fork": "whether the rank server touched CUDA before it forked",
    "torch.cuda.memory._record_memory_history": "the history of CUDA's allocator",
    "torch.cuda.memory._snapshot": "the same",
    "torch.distributed.fsdp._fully_shard._fully_shard._get_device_from_mesh": "the device of FSDP2, in a trace",
    "torch.distributed.pipelining.schedules._batch_p2p": "sends keep their tensors until they are done, in a trace",
    "torch.distributed.pipelining.stage.PipelineStage._warmup_backward_result": "stages vote on shapes, in a trace",
    "torch.distributed.pipelining.stage.PipelineStage._warmup_forward_vote": "the same",
    "torch.distributed.tensor._sharding_prop.ShardingPropagator._propagate_tensor_meta_non_cached": "DTensor's fake "
    "tensors belong to no rank, in a trace",
    "torch.library._scoped_library": "operators registered during one trace",
    "torch.nn.Module._apply": "moves of modules keep their parameters, in a trace",
    "torch.optim.adam._default_to_fused_or_foreach": "steps of the host go tensor by tensor, in a trace",
    "torch.optim.optimizer._default_to_fused_or_foreach": "the same",
    "torch.optim.optimizer._get_foreach_kernels_supported_devices": "steps of CUDA take all tensors, in a trace",
    "torch.optim.sgd._default_to_fused_or_foreach": "steps of the host go tensor by tensor, in a trace",
    "torch.testing._internal.distributed.fake_pg.FakeStore": "a process group of one rank of many, in a trace",
    "torch.utils._foreach_utils": "steps take many tensors at once, in a trace",
    "torch.utils._foreach_utils._foreach_supported_types": "the same",
    "torch.utils._python_dispatch.TorchDispatchMode": "counts and records operators",
    "torch.utils._pytree.tree_leaves": "the tensors among an operator's arguments",
    "torch.utils._pytree.tree_map_only": "the same",
    "transformers.PreTrainedModel._from_config": "a model from a config in the requested dtype",
}

# Operators, by namespace and name. torch does not document them as stable.
OPERATORS = {
    "_c10d_functional.wait_tensor": "the end of a collective",
    "aten._amp_foreach_non_finite_check_and_unscale_": "fp16 overflows, in a trace",
    "aten._local_scalar_dense": "reads a value: a wait for the device",
    "aten._safe_softmax": "copies of oneDNN, in a trace",
    "aten._scaled_dot_product_efficient_attention": "CUDA's fused attention",
    "aten._scaled_dot_product_flash_attention": "the same",
    "aten._scaled_dot_product_flash_attention_backward": "the same",
    "aten._scaled_dot_product_flash_attention_for_cpu": "the CPU's fused attention",
    "aten._scaled_dot_product_flash_attention_for_cpu_backward": "the same",
    "aten._to_copy": "copies of oneDNN, in a trace",
    "mkldnn._is_mkldnn_bf16_supported": "which kernels the CPU has",
    "mkldnn._is_mkldnn_fp16_supported": "the same",
}

# Attributes of objects: an object has to be made to see whether a release has them.
ATTRIBUTES = {
    "_attn_implementation": "transformers' config: the attention kernel",
    "_buffers": "torch.nn.Module: replaced when a module moves, in a trace",
    "_cdata": "torch.UntypedStorage: its address, which names it",
    "_compiled_call_impl": "torch.nn.Module: whether torch.compile has compiled it",
    "_handle": "FSDP1's flat parameter",
    "_local_shard": "FSDP1's flat parameter: this rank's part",
    "_local_tensor": "DTensor: this rank's part",
    "_no_split_modules": "transformers' models: the classes of their blocks",
    "_opname": "an operator's name without its overload",
    "_parameters": "torch.nn.Module: replaced when a module moves, in a trace",
    "_resolve_parallel_plans": "transformers' models: the tensor-parallel plan, its wildcards replaced",
    "_saved_grad_shard": "FSDP1's flat parameter: its gradient",
    "_schema": "an operator's arguments",
    "_sequence_nr": "a node of autograd: its number",
    "_use_count": "torch.Tensor: its reference count, in a trace",
    "_user_meta": "a pipeline stage: the shapes of what it receives",
}
