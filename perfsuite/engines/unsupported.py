"""Engines that people ask for but that cannot run here, each with the result of trying it.

Tried in November 2026 with torch 2.13, transformers 5.23 and Python 3.11.
"""

from perfsuite.catalog.definitions import Engine

ENGINES = (
    Engine(
        name="onnxruntime",
        process="inference",
        # torch.onnx.export of gpt2_tiny takes 12 s, and its loss equals torch's. torch's allocator then counts 0 bytes
        # for a run whose forward needs 713,228 in torch.
        refused="it runs the exported model outside of torch's allocator, so its bytes are neither counted nor "
        "capped. The peak memory would be that of an idle torch; forward measures the same model in torch",
        source="https://onnxruntime.ai",
    ),
    Engine(
        name="tensorrt",
        process="inference",
        refused="the package tensorrt 11.4 wraps the CUDA libraries of tensorrt_cu13, which need an NVIDIA GPU. "
        "They keep weights and activations outside of torch's allocator, so their bytes are not counted",
        source="https://pypi.org/project/tensorrt",
    ),
    Engine(
        name="lightseq",
        refused='lightseq 3.0.1 compiles CUDA kernels when it is imported ("AssertionError: CUDA_HOME does not exist, '
        'unable to compile CUDA op(s)"). Its layers also replace those of the model',
        source="https://pypi.org/project/lightseq",
    ),
    Engine(
        name="tensor_parallel",
        refused="tensor_parallel 2.0.0 cannot be imported (\"ModuleNotFoundError: No module named 'pkg_resources'\"). "
        "With an older setuptools, T5 fails (\"AttributeError: 'T5Config' object has no attribute "
        "'decoder_start_token_id'\"). Llama's loss has no graph (\"element 0 of tensors does not require grad\")",
        source="https://pypi.org/project/tensor-parallel",
    ),
    Engine(
        name="megatron",
        refused="megatron-core 0.16.1 trains its own model classes, not those of transformers. Its forward and "
        'its DistributedDataParallel need CUDA ("AssertionError: Torch not compiled with CUDA enabled")',
        source="https://pypi.org/project/megatron-core",
    ),
    Engine(
        name="fairscale",
        refused="fairscale 0.4.13 of 2022 is no longer developed. Its FullyShardedDataParallel needs CUDA "
        '("AssertionError: Torch not compiled with CUDA enabled"). Its ShardedDataParallel trains wrongly after '
        "zero_grad() has freed the gradients, as torch does since 2.0 (loss of step 3 5.8810, with DDP 5.8629). For "
        "ZeRO, use zero1 to zero3",
        source="https://pypi.org/project/fairscale",
    ),
    Engine(
        name="t5x",
        refused="t5x is JAX code, so it cannot train a torch model. It has no package (PyPI has only an empty 0.0.0: "
        '"No matching distribution found for t5x")',
        source="https://github.com/google-research/t5x",
    ),
    Engine(
        name="device_map",
        refused="one process would need two accelerators, but a rank here has one. transformers has removed "
        "model.parallelize() (\"AttributeError: 'T5ForConditionalGeneration' object has no attribute 'parallelize'\"). "
        "pp_naive trains the same split",
        source="https://huggingface.co/docs/accelerate/concept_guides/big_model_inference",
    ),
)
