"""Engines that people ask for by name and that cannot run here, each with what happened when it was tried.

Tried in November 2026 with torch 2.13, transformers 5.23 and Python 3.11.
"""

from perfsuite.catalog.definitions import Engine

ENGINES = (
    Engine(
        name="onnxruntime",
        process="inference",
        # torch.onnx.export of gpt2_tiny takes 12 s and its loss is torch's; the allocator of torch then sees 0 bytes
        # of a run whose forward needs 713,228 in torch.
        refused="it runs the exported model outside of torch's allocator, where none of its bytes is counted or "
        "capped, so the peak memory would be that of an idle torch; forward measures the same model in torch",
        source="https://onnxruntime.ai",
    ),
    Engine(
        name="tensorrt",
        process="inference",
        refused="the package tensorrt 11.4 is a shell around the CUDA libraries of tensorrt_cu13, which optimize for "
        "the NVIDIA GPU that is present and hold weights and activations outside of torch's allocator, where none of "
        "their bytes is counted",
        source="https://pypi.org/project/tensorrt",
    ),
    Engine(
        name="lightseq",
        refused='lightseq 3.0.1 compiles CUDA kernels when it is imported ("AssertionError: CUDA_HOME does not exist, '
        'unable to compile CUDA op(s)"), and its layers replace those of the model',
        source="https://pypi.org/project/lightseq",
    ),
    Engine(
        name="tensor_parallel",
        refused="tensor_parallel 2.0.0 cannot be imported (\"ModuleNotFoundError: No module named 'pkg_resources'\"); "
        "with an older setuptools T5 fails (\"AttributeError: 'T5Config' object has no attribute "
        "'decoder_start_token_id'\"), and Llama's loss has no graph (\"element 0 of tensors does not require grad\")",
        source="https://pypi.org/project/tensor-parallel",
    ),
    Engine(
        name="megatron",
        refused="megatron-core 0.16.1 trains model classes of its own, not those of transformers, and its forward and "
        'its DistributedDataParallel need CUDA ("AssertionError: Torch not compiled with CUDA enabled")',
        source="https://pypi.org/project/megatron-core",
    ),
    Engine(
        name="fairscale",
        refused="fairscale 0.4.13 of 2022 is not developed any more: its FullyShardedDataParallel needs CUDA "
        '("AssertionError: Torch not compiled with CUDA enabled"), and its ShardedDataParallel trains wrong once '
        "zero_grad() has freed the gradients, as torch does since 2.0 (loss of step 3 5.8810, with DDP 5.8629); ZeRO "
        "is zero1 to zero3",
        source="https://pypi.org/project/fairscale",
    ),
    Engine(
        name="t5x",
        refused='t5x is JAX code without a package (PyPI has an empty 0.0.0 alone: "No matching distribution found for '
        't5x"), so it can train no torch model',
        source="https://github.com/google-research/t5x",
    ),
    Engine(
        name="device_map",
        refused="one process would need two accelerators, and a rank here has one; transformers has removed "
        "model.parallelize() (\"AttributeError: 'T5ForConditionalGeneration' object has no attribute 'parallelize'\"); "
        "pp_naive trains the same split",
        source="https://huggingface.co/docs/accelerate/concept_guides/big_model_inference",
    ),
)
