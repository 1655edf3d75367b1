"""A small Phi-3 with long positions, compiled by torch.

    python benchmarks/regressions/compiled_phi3.py

The backend runs what torch traced without compiling it further: graph breaks and recompilations are the same.
"""

import torch
from transformers import Phi3Config, Phi3ForCausalLM

VOCABULARY, STEPS = 128, 30


def build() -> torch.nn.Module:
    """Two layers; the factors of the longer positions are those of the shorter ones."""
    torch.manual_seed(0)
    factors = [1.0] * 4
    config = Phi3Config(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        pad_token_id=0,
        max_position_embeddings=128,
        original_max_position_embeddings=64,
        rope_scaling={"type": "longrope", "short_factor": factors, "long_factor": factors},
        use_cache=False,
    )
    return Phi3ForCausalLM(config).train()


def main() -> None:
    """Train on random tokens."""
    model = build()
    optimizer = torch.optim.AdamW(model.parameters())
    compiled = torch.compile(model, backend="eager")
    chance = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        tokens = torch.randint(VOCABULARY, (4, 32), generator=chance)
        compiled(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
