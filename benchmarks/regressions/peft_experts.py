"""LoRA by peft on the experts of a small GPT-OSS, whose weights are parameters and not linear layers.

    python benchmarks/regressions/peft_experts.py

transformers 4 computes one expert after the other, and takes its part of the parameters.
"""

import torch
from peft import LoraConfig, get_peft_model
from transformers import GptOssConfig, GptOssForCausalLM

VOCABULARY, STEPS = 128, 30


def build() -> torch.nn.Module:
    """Two layers of eight experts with adapters."""
    torch.manual_seed(0)
    config = GptOssConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=8,
        num_local_experts=8,
        num_experts_per_tok=2,
        attn_implementation="eager",
        use_cache=False,
    )
    adapters = LoraConfig(target_modules=[], target_parameters=["mlp.experts.gate_up_proj", "mlp.experts.down_proj"])
    model: torch.nn.Module = get_peft_model(GptOssForCausalLM(config), adapters)
    return model.train()


def main() -> None:
    """Train on random tokens."""
    model = build()
    optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad])
    chance = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        tokens = torch.randint(VOCABULARY, (4, 32), generator=chance)
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
