"""A small model, compiled by torch.

    python benchmarks/regressions/compiled_forward.py phi3

The argument is the model: "phi3", with long positions; or "llava", an image beside the text. The backend runs what
torch traced without compiling it further: graph breaks and recompilations are the same.
"""

import sys
from typing import Any

import torch
import transformers

VOCABULARY, WIDTH, HEADS, ROWS, STEPS = 128, 32, 4, 4, 30
IMAGE, PLACES = 5, 4  # the token that stands for a part of an image, and how many parts an image has
SHAPE = {"hidden_size": WIDTH, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": HEADS}
TEXT = SHAPE | {"vocab_size": VOCABULARY, "num_key_value_heads": HEADS, "pad_token_id": 0, "use_cache": False}


def phi3() -> Any:
    """The factors of the longer positions are those of the shorter ones."""
    factors = [1.0] * (WIDTH // HEADS // 2)
    longer = {"type": "longrope", "short_factor": factors, "long_factor": factors}
    lengths = {"max_position_embeddings": 128, "original_max_position_embeddings": 64}
    return transformers.Phi3ForCausalLM(transformers.Phi3Config(**TEXT, **lengths, rope_scaling=longer))


def llava() -> Any:
    """Images of 16 × 16 in four parts."""
    config = transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(**SHAPE, image_size=16, patch_size=8),
        text_config=transformers.LlamaConfig(**TEXT),
        image_token_id=IMAGE,
        image_token_index=IMAGE,  # its name before
    )
    return transformers.LlavaForConditionalGeneration(config)


def main(name: str) -> None:
    """Train on random tokens and images."""
    torch.manual_seed(0)
    model = {"phi3": phi3, "llava": llava}[name]().train()
    optimizer = torch.optim.AdamW(model.parameters())
    compiled = torch.compile(model, backend="eager")
    chance = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        tokens = torch.randint(IMAGE + 1, VOCABULARY, (ROWS, 32), generator=chance)
        images = {}
        if name == "llava":
            tokens[:, :PLACES] = IMAGE
            images["pixel_values"] = torch.randn(ROWS, 3, 16, 16, generator=chance)
        compiled(input_ids=tokens, labels=tokens, **images).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main(sys.argv[1])
