"""Adapters of peft on a small model.

    python benchmarks/regressions/peft_adapters.py tokens

The argument is the adapter:

    embeddings      LoRA on the embeddings of a Gemma 3, which scales them
    tokens          some rows of the embeddings of a Gemma 3 are trained
    second_layer    LoRA on the experts of the second layer of a Mixtral, which has four
    fixed_a         LoRA-FA: the first matrix stays as it is, and two layers have ranks of their own
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
    if adapter in ("embeddings", "tokens"):
        model = transformers.Gemma3ForCausalLM(transformers.Gemma3TextConfig(**SHAPE, head_dim=16))
    elif adapter == "second_layer":
        model = transformers.MixtralForCausalLM(
            transformers.MixtralConfig(**SHAPE, num_local_experts=4, num_experts_per_tok=2)
        )
    else:
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SHAPE))
    return peft.get_peft_model(model, config(adapter)).train()


def config(adapter: str) -> Any:
    """As peft's documentation has it."""
    if adapter == "embeddings":
        return peft.LoraConfig(task_type="CAUSAL_LM", target_modules=["embed_tokens"], init_lora_weights=False)
    if adapter == "tokens":
        return peft.TrainableTokensConfig(task_type="CAUSAL_LM", token_indices=list(range(64)), init_weights=False)
    if adapter == "second_layer":
        return peft.LoraConfig(task_type="CAUSAL_LM", target_modules=["w1", "w2", "w3"], layers_to_transform=[1])
    ranks = {"layers.0.self_attn.q_proj": 2}
    return peft.LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj", "v_proj"], r=16, rank_pattern=ranks)


def optimizer_of(adapter: str, model: Any) -> Any:
    """AdamW, or the one that an adapter needs."""
    if adapter != "fixed_a":
        return torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=1e-3)
    from peft.optimizers import create_lorafa_optimizer

    return create_lorafa_optimizer(model=model, r=16, lora_alpha=8, lr=1e-3)


def main(adapter: str) -> None:
    """Train on random tokens."""
    model = build(adapter)
    optimizer = optimizer_of(adapter, model)
    chance = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        tokens = torch.randint(1, WORDS, (4, 64), generator=chance)
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main(sys.argv[1])
