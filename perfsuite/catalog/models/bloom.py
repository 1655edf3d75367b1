"""BLOOM: a decoder with ALiBi instead of position embeddings, fused query-key-value and a large tied vocabulary.

Every size exists as a language model and, with the suffix ``_cls``, as a classifier of two classes.
"""

from dataclasses import replace
from typing import Any

from perfsuite.catalog.definitions import Cut, Model
from perfsuite.catalog.models._sizes import sizes_of

LABELS = 2


def _language_model(size: dict[str, Any]) -> Model:
    """Its head is tied to the embedding."""
    return Model(
        **size,
        family="bloom",
        task="causal_lm",
        config_class="BloomConfig",
        model_class="BloomForCausalLM",
        attentions=frozenset({"eager"}),  # it adds its positions (ALiBi) to the scores in its own matmul
        first_token=4,  # 0 stands for an unknown word, 1 starts and 2 ends a text, 3 pads
        cut=Cut(
            body="transformer",
            layers="transformer.h",
            depth=size["config"]["n_layer"],
            first=("transformer.word_embeddings", "transformer.word_embeddings_layernorm"),
            last=("transformer.ln_f", "lm_head"),
            tied=("transformer.word_embeddings.weight", "lm_head.weight"),
        ),
    )


def _classifier(model: Model) -> Model:
    return replace(
        model,
        name=f"{model.name}_cls",
        task="sequence_classification",
        # the score layer has no bias and is the only parameter that the language model lacks
        parameters=model.parameters + LABELS * model.config["hidden_size"],
        model_class="BloomForSequenceClassification",
        config={**model.config, "num_labels": LABELS},
        cut=None,
    )


MODELS = tuple(made for model in map(_language_model, sizes_of(__file__)) for made in (model, _classifier(model)))
