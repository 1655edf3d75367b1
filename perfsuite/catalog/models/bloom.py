"""BLOOM: a decoder with ALiBi instead of position embeddings, fused query-key-value and a large tied vocabulary.

Every size exists as a language model and, with the suffix ``_cls``, as a classifier of two classes.
"""

from dataclasses import replace
from pathlib import Path

from perfsuite.catalog.definitions import Model
from perfsuite.catalog.models._sizes import models_of

LABELS = 2


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


MODELS = tuple(made for model in models_of(Path(__file__)) for made in (model, _classifier(model)))
