"""GPT-2: a decoder with learned positions, layer norm before each block, dropout and a tied head.

Dimensions: table 2 of "Language Models are Unsupervised Multitask Learners" (Radford et al., 2019) and the
config.json of openai-community/gpt2, gpt2-medium, gpt2-large and gpt2-xl on the Hugging Face hub; the paper's own
parameter counts are wrong, the ones here are those of the checkpoints. ``gpt2_tiny`` is perfsuite's own.
"""

from typing import Any

from perfsuite.catalog.definitions import Cut, Model, Workload

_REAL = Workload(micro_batch=1, sequence_length=1024)


def cut(depth: int) -> Cut:
    """Where GPT-2 is cut; its head is tied to the embedding."""
    return Cut(
        body="transformer",
        layers="transformer.h",
        depth=depth,
        first=("transformer.wte", "transformer.wpe", "transformer.drop"),
        last=("transformer.ln_f", "lm_head"),
        tied=("transformer.wte.weight", "lm_head.weight"),
    )


def _gpt2(name: str, source: str, parameters: int, workload: Workload = _REAL, **dimensions: Any) -> Model:
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
        family="gpt2",
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
        cut=cut(config["n_layer"]),
    )


MODELS = (
    _gpt2(
        "gpt2_tiny",
        "perfsuite",
        141_056,
        Workload(micro_batch=2, sequence_length=64),
        vocab_size=512,
        n_positions=128,
        n_embd=64,
        n_layer=2,
        n_head=4,
        bos_token_id=511,
        eos_token_id=511,
    ),
    _gpt2(
        "gpt2_tiny_l4",
        "perfsuite",
        241_024,
        Workload(micro_batch=2, sequence_length=64),
        vocab_size=512,
        n_positions=128,
        n_embd=64,
        n_layer=4,
        n_head=4,
        bos_token_id=511,
        eos_token_id=511,
    ),
    _gpt2("gpt2_small", "openai-community/gpt2", 124_439_808, n_embd=768, n_layer=12, n_head=12),
    _gpt2("gpt2_medium", "openai-community/gpt2-medium", 354_823_168, n_embd=1024, n_layer=24, n_head=16),
    _gpt2("gpt2_large", "openai-community/gpt2-large", 774_030_080, n_embd=1280, n_layer=36, n_head=20),
    _gpt2("gpt2_xl", "openai-community/gpt2-xl", 1_557_611_200, n_embd=1600, n_layer=48, n_head=25),
)
