"""Adapters of peft on a small model.

    python benchmarks/regressions/peft_adapters.py embeddings

The argument is the adapter:

    embeddings      LoRA on the embeddings of a Gemma 3, which scales them
    second_layer    LoRA on the experts of the second layer of a Mixtral, which has four
"""

import sys
from typing import Any

import peft
import torch
import transformers

WORDS, STEPS = 128, 30
SHAPE = {
    "vocab_size": WORDS,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "pad_token_id": 0,
    "use_cache": False,
}


def build(adapter: str) -> Any:
    """The model, with random weights, and with its adapter."""
    torch.manual_seed(0)
    if adapter == "embeddings":
        model = transformers.Gemma3ForCausalLM(transformers.Gemma3TextConfig(**SHAPE, head_dim=16))
    else:
        experts = {"num_local_experts": 4, "num_experts_per_tok": 2}
        model = transformers.MixtralForCausalLM(transformers.MixtralConfig(**SHAPE, **experts))
    return peft.get_peft_model(model, config(adapter)).train()


def config(adapter: str) -> Any:
    """As peft's documentation has it."""
    if adapter == "embeddings":
        return peft.LoraConfig(task_type="CAUSAL_LM", target_modules=["embed_tokens"], init_lora_weights=False)
    return peft.LoraConfig(task_type="CAUSAL_LM", target_modules=["w1", "w2", "w3"], layers_to_transform=[1])


def main(adapter: str) -> None:
    """Train on random tokens."""
    model = build(adapter)
    optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=1e-3)
    chance = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        tokens = torch.randint(1, WORDS, (4, 64), generator=chance)
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main(sys.argv[1])
