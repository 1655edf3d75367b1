"""Llama 3: a decoder with rotary positions, RMS norm, grouped-query attention and a gated feed-forward; no dropout.

Dimensions: arXiv 2407.21783, table 3, and the config.json of meta-llama/Llama-3.2-1B, Llama-3.1-8B and Llama-3.1-70B
on the Hugging Face hub; ``llama_tiny`` and ``llama_mini`` are perfsuite's own.
"""

from typing import Any

from perfsuite.catalog.definitions import Cut, Model, Workload

_REAL = Workload(micro_batch=1, sequence_length=2048)
_TINY: dict[str, Any] = {
    "workload": Workload(micro_batch=2, sequence_length=64),
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 192,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "bos_token_id": 510,
    "eos_token_id": 511,
}


def _llama(
    name: str,
    source: str,
    parameters: int,
    workload: Workload = _REAL,
    rope_factor: float = 8.0,
    **dimensions: Any,
) -> Model:
    config: dict[str, Any] = {
        "vocab_size": 128256,
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5,
        "attention_dropout": 0.0,
        "tie_word_embeddings": False,
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 500000.0,
            "factor": rope_factor,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
        "bos_token_id": 128000,
        "eos_token_id": 128001,
        "use_cache": False,
    } | dimensions
    return Model(
        name=name,
        family="llama",
        task="causal_lm",
        source=source,
        workload=workload,
        parameters=parameters,
        config_class="LlamaConfig",
        model_class="LlamaForCausalLM",
        config=config,
        vocabulary=config["vocab_size"],
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


MODELS = (
    _llama("llama_tiny", "perfsuite", 164_160, num_hidden_layers=2, **_TINY),
    _llama("llama_tiny_l4", "perfsuite", 262_720, num_hidden_layers=4, **_TINY),
    _llama(
        "llama_mini",  # the smallest whose tensors DeepSpeed swaps to a disk: 1 MiB and more
        "perfsuite",
        6_556_160,
        Workload(micro_batch=2, sequence_length=32),
        vocab_size=2048,
        hidden_size=512,
        intermediate_size=1024,
        num_hidden_layers=2,
        num_attention_heads=8,
        num_key_value_heads=2,
        bos_token_id=2046,
        eos_token_id=2047,
    ),
    _llama(
        "llama_1b",
        "meta-llama/Llama-3.2-1B",
        1_235_814_400,
        rope_factor=32.0,
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=16,
        num_attention_heads=32,
        num_key_value_heads=8,
        tie_word_embeddings=True,
    ),
    _llama(
        "llama_8b",
        "meta-llama/Llama-3.1-8B",
        8_030_261_248,
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=8,
    ),
    _llama(
        "llama_70b",
        "meta-llama/Llama-3.1-70B",
        70_553_706_496,
        hidden_size=8192,
        intermediate_size=28672,
        num_hidden_layers=80,
        num_attention_heads=64,
        num_key_value_heads=8,
    ),
)
