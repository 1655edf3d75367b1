"""Adapters of peft on a small model.

    python benchmarks/regressions/peft_adapters.py embeddings

The argument is the adapter:

    embeddings      LoRA on the embeddings of a Gemma 3, which scales them
    second_layer    LoRA on the experts of the second layer of a Mixtral, which has four
    policy          LoRA on the attention of a Llama, beside an older copy of it; it is saved in every second step
    lora_plus       LoRA on the embeddings and the attention of a Llama, with the optimizer of LoRA+
"""

import sys
from typing import Any

import peft
import peft.optimizers
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
    elif adapter in ("lora_plus", "policy"):
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SHAPE))
    else:
        experts = {"num_local_experts": 4, "num_experts_per_tok": 2}
        model = transformers.MixtralForCausalLM(transformers.MixtralConfig(**SHAPE, **experts))
    adapted = peft.get_peft_model(model, config(adapter), adapter_name=adapter).train()
    if adapter == "policy":
        adapted.add_adapter("policy_old", config(adapter))
    return adapted


def config(adapter: str) -> Any:
    """As peft's documentation has it."""
    if adapter == "embeddings":
        return peft.LoraConfig(task_type="CAUSAL_LM", target_modules=["embed_tokens"], init_lora_weights=False)
    if adapter == "policy":
        return peft.LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj", "v_proj"])
    if adapter == "lora_plus":
        return peft.LoraConfig(task_type="CAUSAL_LM", target_modules=["embed_tokens", "q_proj", "v_proj"])
    return peft.LoraConfig(task_type="CAUSAL_LM", target_modules=["w1", "w2", "w3"], layers_to_transform=[1])


def optimizer_of(adapter: str, model: Any) -> torch.optim.Optimizer:
    """AdamW; for LoRA+ with a rate for each kind of weights."""
    if adapter == "lora_plus":
        rates = {"lr": 1e-3, "loraplus_lr_ratio": 16, "loraplus_lr_embedding": 1e-5}
        plus: torch.optim.Optimizer = peft.optimizers.create_loraplus_optimizer(model, torch.optim.AdamW, **rates)
        return plus
    return torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=1e-3)


def main(adapter: str) -> None:
    """Train on random tokens."""
    model = build(adapter)
    optimizer = optimizer_of(adapter, model)
    chance = torch.Generator().manual_seed(1)
    for step in range(STEPS):
        tokens = torch.randint(1, WORDS, (4, 64), generator=chance)
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if adapter == "policy" and step % 2:
            model.save_pretrained("out", selected_adapters=[adapter])


if __name__ == "__main__":
    main(sys.argv[1])
