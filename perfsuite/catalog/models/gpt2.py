"""GPT-2: a decoder with learned positions, layer norm before each block, dropout and a tied head.

Dimensions: table 2 of "Language Models are Unsupervised Multitask Learners" (Radford et al., 2019) and the
config.json of openai-community/gpt2, gpt2-medium, gpt2-large and gpt2-xl on the Hugging Face hub; the paper's own
parameter counts are wrong, the ones here are those of the checkpoints. ``gpt2_tiny`` is perfsuite's own.
"""

from typing import Any

from perfsuite.catalog.definitions import Cut, Model, Workload

_REAL = Workload(micro_batch=1, sequence_length=1024)


_TINY: dict[str, Any] = {
    "workload": Workload(micro_batch=2, sequence_length=64),
    "vocab_size": 512,
    "n_positions": 128,
    "n_embd": 64,
    "n_head": 4,
    "bos_token_id": 511,
    "eos_token_id": 511,
}


def gpt(
    name: str, source: str, parameters: int, workload: Workload = _REAL, family: str = "gpt2", **dimensions: Any
) -> Model:
    """A model of GPT-2's architecture; its head is tied to the embedding."""
    config: dict[str, Any] = {
        "vocab_size": 50257,
        "n_positions": 1024,
        "activation_function": "gelu_new",
        "resid_pdrop": 0.1,
        "embd_pdrop": 0.1,
        "attn_pdrop": 0.1,
        "bos_token_id": 50256,
        "eos_token_id": 50256,
        "use_cache": False,
    } | dimensions
    return Model(
        name=name,
        family=family,
        task="causal_lm",
        source=source,
        workload=workload,
        parameters=parameters,
        config_class="GPT2Config",
        model_class="GPT2LMHeadModel",
        config=config,
        positions=config["n_positions"],
        vocabulary=config["vocab_size"],
        first_token=0,  # no padding; the end of a text is the last token of the vocabulary
        cut=Cut(
            body="transformer",
            layers="transformer.h",
            depth=config["n_layer"],
            first=("transformer.wte", "transformer.wpe", "transformer.drop"),
            last=("transformer.ln_f", "lm_head"),
            tied=("transformer.wte.weight", "lm_head.weight"),
        ),
    )


MODELS = (
    gpt("gpt2_tiny", "perfsuite", 141_056, n_layer=2, **_TINY),
    gpt("gpt2_tiny_l4", "perfsuite", 241_024, n_layer=4, **_TINY),
    gpt("gpt2_small", "openai-community/gpt2", 124_439_808, n_embd=768, n_layer=12, n_head=12),
    gpt("gpt2_medium", "openai-community/gpt2-medium", 354_823_168, n_embd=1024, n_layer=24, n_head=16),
    gpt("gpt2_large", "openai-community/gpt2-large", 774_030_080, n_embd=1280, n_layer=36, n_head=20),
    gpt("gpt2_xl", "openai-community/gpt2-xl", 1_557_611_200, n_embd=1600, n_layer=48, n_head=25),
)
