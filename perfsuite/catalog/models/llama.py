"""Llama 3: a decoder with rotary positions, RMS norm, grouped-query attention and a gated feed-forward; no dropout."""

from typing import Any

from perfsuite.catalog.definitions import Cut, Model
from perfsuite.catalog.models._sizes import sizes_of


def _llama(size: dict[str, Any]) -> Model:
    config = size["config"]
    return Model(
        **size,
        family="llama",
        task="causal_lm",
        config_class="LlamaConfig",
        model_class="LlamaForCausalLM",
        first_token=0,  # no padding; the special tokens are the last of the vocabulary
        divisible={
            "heads": config["num_attention_heads"],
            "key-value heads": config["num_key_value_heads"],
            "feed-forward features": config["intermediate_size"],
            "tokens of the vocabulary": config["vocab_size"],
        },
        cut=Cut(
            body="model",
            layers="model.layers",
            depth=config["num_hidden_layers"],
            first=("model.embed_tokens",),
            last=("model.norm", "lm_head"),
            tied=("model.embed_tokens.weight", "lm_head.weight") if config["tie_word_embeddings"] else None,
        ),
    )


MODELS = tuple(map(_llama, sizes_of(__file__)))
