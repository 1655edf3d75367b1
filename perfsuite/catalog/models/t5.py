"""T5 (version 1.0): an encoder and a decoder with relative position buckets, RMS norm and a tied head."""

from perfsuite.catalog.definitions import Model
from perfsuite.catalog.models._sizes import sizes_of

MODELS = tuple(
    Model(
        **size,
        family="t5",
        task="seq2seq_lm",
        config_class="T5Config",
        model_class="T5ForConditionalGeneration",
        attentions=frozenset({"eager", "sdpa"}),  # its position bias is added to the scores
        first_token=3,  # 0 pads, 1 ends a sequence, 2 stands for an unknown word
    )
    for size in sizes_of(__file__)
)
