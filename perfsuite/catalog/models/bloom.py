"""BLOOM: a decoder with ALiBi instead of position embeddings, fused query-key-value and a large tied vocabulary.

Every size exists as a language model and, with the suffix ``_cls``, as a classifier of two classes.

Dimensions: arXiv 2211.05100, table 3, and the config.json of bigscience/bloom-560m, bloom-3b, bloom-7b1 and bloom on
the Hugging Face hub; ``bloom_tiny`` is perfsuite's own.
"""

from typing import Any

from perfsuite.catalog.definitions import Cut, Model, Workload

_REAL = Workload(micro_batch=1, sequence_length=512)


def _bloom(name: str, source: str, parameters: int, workload: Workload = _REAL, **dimensions: Any) -> tuple[Model, ...]:
    """One size with both heads; ``parameters`` counts the language model, whose head is tied to the embedding."""
    config: dict[str, Any] = {
        "vocab_size": 250880,
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 3,  # the classifier needs it to find the last token of a sample
        "use_cache": False,
    } | dimensions
    common: dict[str, Any] = {
        "family": "bloom",
        "source": source,
        "workload": workload,
        "config_class": "BloomConfig",
        "vocabulary": config["vocab_size"],
        "attentions": frozenset({"eager"}),  # it adds its positions (ALiBi) to the scores in its own matmul
        "first_token": 4,  # 0 stands for an unknown word, 1 starts and 2 ends a text, 3 pads
    }
    labels = 2
    return (
        Model(
            name=name,
            task="causal_lm",
            parameters=parameters,
            model_class="BloomForCausalLM",
            config=config,
            cut=Cut(
                body="transformer",
                layers="transformer.h",
                depth=config["n_layer"],
                first=("transformer.word_embeddings", "transformer.word_embeddings_layernorm"),
                last=("transformer.ln_f", "lm_head"),
                tied=("transformer.word_embeddings.weight", "lm_head.weight"),
            ),
            **common,
        ),
        Model(
            name=f"{name}_cls",
            task="sequence_classification",
            # the score layer has no bias and is the only parameter that the language model lacks
            parameters=parameters + labels * config["hidden_size"],
            model_class="BloomForSequenceClassification",
            config=config | {"num_labels": labels},
            **common,
        ),
    )


MODELS = (
    *_bloom(
        "bloom_tiny",
        "perfsuite",
        132_992,
        Workload(micro_batch=2, sequence_length=64),
        vocab_size=512,
        hidden_size=64,
        n_layer=2,
        n_head=4,
    ),
    *_bloom("bloom_560m", "bigscience/bloom-560m", 559_214_592, hidden_size=1024, n_layer=24, n_head=16),
    *_bloom("bloom_3b", "bigscience/bloom-3b", 3_002_557_440, hidden_size=2560, n_layer=30, n_head=32),
    *_bloom("bloom_7b1", "bigscience/bloom-7b1", 7_069_016_064, hidden_size=4096, n_layer=30, n_head=32),
    *_bloom("bloom_176b", "bigscience/bloom", 176_247_271_424, hidden_size=14336, n_layer=70, n_head=112),
)
