"""GPT-2: a decoder with learned positions, layer norm before each block, dropout and a tied head."""

from typing import Any

from perfsuite.catalog.definitions import Cut, Model
from perfsuite.catalog.models._sizes import sizes_of


def gpt(family: str, size: dict[str, Any]) -> Model:
    """A model of GPT-2's architecture; its head is tied to the embedding."""
    return Model(
        **size,
        family=family,
        task="causal_lm",
        config_class="GPT2Config",
        model_class="GPT2LMHeadModel",
        positions=size["config"]["n_positions"],
        first_token=0,  # no padding; the end of a text is the last token of the vocabulary
        cut=Cut(
            body="transformer",
            layers="transformer.h",
            depth=size["config"]["n_layer"],
            first=("transformer.wte", "transformer.wpe", "transformer.drop"),
            last=("transformer.ln_f", "lm_head"),
            tied=("transformer.wte.weight", "lm_head.weight"),
        ),
    )


MODELS = tuple(gpt("gpt2", size) for size in sizes_of(__file__))
