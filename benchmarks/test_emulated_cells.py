"""Every engine on GPUs that nobody has: ``perfsuite emulate --gpus h100:2 -- pytest --perf`` with this file.

The cells are tiny. What they show is that the CUDA path of each engine runs to its end; docs/emulation.md tells what an
emulated GPU measures. ``tox -e emulated`` runs them on three kinds of devices. They have no baselines.
"""

import pytest

SINGLE = ("single+bf16", "single+fp16+ckpt", "single+compile", "single+lora", "single+adamw8bit",
          "single+adamw8bit_ao", "single+bf16+hf_trainer", "forward", "generate")  # fmt: skip
TWO = ("ddp+bf16+acc2", "ddp+accelerate", "zero1+bf16", "zero2+bf16+offload_optimizer", "zero3+bf16", "zero3+offload",
       "fsdp1+bf16", "fsdp2+bf16+ckpt", "tp+bf16", "autotp", "pp_naive", "pp_gpipe+acc2", "pp_1f1b+acc2",
       "pp_deepspeed+acc2")  # fmt: skip

OF_FOUR_LAYERS = ("pp_interleaved+acc2", "device_map+bf16",
                  "megatron+tp2+bf16", "megatron_distributed+dp2+fp16", "megatron_interleaved+acc2")  # fmt: skip


@pytest.mark.perf_cell(models=["llama_tiny"], strategies=SINGLE, hardware=["gpus"])
@pytest.mark.perf_cell(models=["llama_tiny"], strategies=TWO, hardware=["gpus"])
@pytest.mark.perf_cell(models=["gpt2_tiny_l4"], strategies=OF_FOUR_LAYERS, hardware=["gpus"])
def test_emulated_cell(perf_cell, benchmark):
    """The cell runs to its end on the GPUs that this machine has, or seems to have."""
    perf_cell.check()
