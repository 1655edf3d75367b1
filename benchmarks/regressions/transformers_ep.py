"""Expert parallelism of transformers: two ranks have the same tokens, and half of the experts each.

    torchrun --nproc-per-node 2 benchmarks/regressions/transformers_ep.py batched_mm

The argument is how experts are computed, as transformers names it.
"""

import sys

import torch
import torch.distributed as dist
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM
from transformers.distributed import DistributedConfig

VOCABULARY, STEPS = 128, 30


def build(experts: str) -> torch.nn.Module:
    """transformers divides a model while it loads one, so it is saved first."""
    torch.manual_seed(0)
    config = Qwen3MoeConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        moe_intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=8,
        num_experts=4,
        num_experts_per_tok=2,
        initializer_range=0.2,  # so that a router's gradient is not lost in those of the other weights
    )
    divided = DistributedConfig(tp_size=dist.get_world_size(), enable_expert_parallel=True)
    if dist.get_rank() == 0:
        Qwen3MoeForCausalLM(config).save_pretrained("small")
    dist.barrier()
    return Qwen3MoeForCausalLM.from_pretrained(
        "small", distributed_config=divided, experts_implementation=experts, dtype=torch.float32
    ).train()


def main(experts: str) -> None:
    """Train on random tokens."""
    dist.init_process_group("gloo")
    model = build(experts)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    chance = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        tokens = torch.randint(VOCABULARY, (4, 32), generator=chance)
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
