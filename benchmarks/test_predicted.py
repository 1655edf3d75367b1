"""Predicted memory must be equal on any machine: ``pytest --perf --perf-predict benchmarks/test_predicted.py``.

Every engine that can be traced, every family, and GPUs of five generations; if a new release of torch, transformers
or DeepSpeed changes their memory, they are red here without a GPU.
"""

import pytest


@pytest.mark.perf_cell(
    "gpt2_tiny-single+bf16-rtx3090_x1",
    "bloom_tiny_cls-single+lora+fp16-t4_x1",
    "t5_tiny-ddp+bf16+acc2-l40s_x2",
    "bloom_tiny-zero2+bf16-a100_80g_x4",
    "gpt2_tiny-zero2+fp16+offload_optimizer-v100_32g_x4",
    "t5_tiny-zero3+bf16-h100_x8",
    "llama_tiny-fsdp2+bf16+ckpt-h100_x8",
    "llama_tiny-tp+bf16-h100_x2",
    "gpt2_tiny_l4-pp_1f1b+bf16+acc4-a100_80g_x4",
)
@pytest.mark.perf_cell(
    "gpt2_small-single+fp16-t4_x1",
    "t5_base-ddp+bf16-rtx3090_x2",
    "llama_1b-fsdp2+bf16+ckpt-h100_x8",
)
def test_predicted_cell(perf_cell):
    """The cell needs exactly the memory of its predicted baseline."""
    perf_cell.check()
