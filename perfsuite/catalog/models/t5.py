"""T5 (version 1.0): an encoder and a decoder with relative position buckets, RMS norm and a tied head.

Dimensions: arXiv 1910.10683, sections 2.1 and 3.7, and the config.json of google-t5/t5-small, t5-base, t5-large,
t5-3b and t5-11b on the Hugging Face hub; ``t5_tiny`` is perfsuite's own.

Version 1.1 (google/t5-v1_1-xxl and its siblings) is left out on purpose: those checkpoints have a head of their own,
which transformers 5 ties whatever the config says: it would build an xxl of 11,003,736,064 parameters, not the
checkpoint's 11,135,332,352.
"""

from typing import Any

from perfsuite.catalog.definitions import Model, Workload

_REAL = Workload(micro_batch=1, sequence_length=512, target_length=128)


def _t5(name: str, source: str, parameters: int, workload: Workload = _REAL, **dimensions: Any) -> Model:
    config: dict[str, Any] = {
        "vocab_size": 32128,
        "feed_forward_proj": "relu",
        "dropout_rate": 0.1,
        "pad_token_id": 0,
        "eos_token_id": 1,
        "decoder_start_token_id": 0,  # the labels are shifted right after it
        "use_cache": False,
    } | dimensions
    return Model(
        name=name,
        family="t5",
        task="seq2seq_lm",
        source=source,
        workload=workload,
        parameters=parameters,
        config_class="T5Config",
        model_class="T5ForConditionalGeneration",
        config=config,
        vocabulary=config["vocab_size"],
        attentions=frozenset({"eager", "sdpa"}),  # its position bias is added to the scores
        first_token=3,  # 0 pads, 1 ends a sequence, 2 stands for an unknown word
    )


MODELS = (
    _t5(
        "t5_tiny",
        "perfsuite",
        197_632,
        Workload(micro_batch=2, sequence_length=64, target_length=32),
        vocab_size=512,
        d_model=64,
        d_kv=16,
        d_ff=128,
        num_layers=2,
        num_heads=4,
    ),
    _t5("t5_small", "google-t5/t5-small", 60_506_624, d_model=512, d_kv=64, d_ff=2048, num_layers=6, num_heads=8),
    _t5("t5_base", "google-t5/t5-base", 222_903_552, d_model=768, d_kv=64, d_ff=3072, num_layers=12, num_heads=12),
    _t5("t5_large", "google-t5/t5-large", 737_668_096, d_model=1024, d_kv=64, d_ff=4096, num_layers=24, num_heads=16),
    # 3B and 11B widen only the feed-forward and the attention: heads times d_kv is no longer d_model.
    _t5("t5_3b", "google-t5/t5-3b", 2_851_598_336, d_model=1024, d_kv=128, d_ff=16384, num_layers=24, num_heads=32),
    _t5("t5_11b", "google-t5/t5-11b", 11_307_321_344, d_model=1024, d_kv=128, d_ff=65536, num_layers=24, num_heads=128),
)
