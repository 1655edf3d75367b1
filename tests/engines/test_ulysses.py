"""Ulysses: ranks share sequences, attention exchanges tokens for heads, and the training is that of one rank."""

import pytest
from parity import worst
from sampling import slow_unless

from perfsuite.catalog.cell import parse_cell
from perfsuite.errors import Refused

BOUND = 1e-4
FAULTS = "perfsuite.rank.faults.attention"
LLAMA = "llama_tiny-ulysses-cpu_x2"
PAIRS = [  # the same global batch on one rank, and divided
    ("llama_tiny-single-cpu_x1", LLAMA),
    ("gemma3_tiny-single-cpu_x1", "gemma3_tiny-ulysses-cpu_x2"),  # windows
    ("mistral_tiny-single-cpu_x1", "mistral_tiny-ulysses-cpu_x2"),
    ("qwen3_tiny-single-cpu_x1", "qwen3_tiny-ulysses-cpu_x2"),
    ("gpt2_tiny-single+nodrop-cpu_x1", "gpt2_tiny-ulysses+nodrop-cpu_x2"),
    ("llama_tiny-single+packed-cpu_x1", "llama_tiny-ulysses+packed-cpu_x2"),
    ("gemma3_tiny-single+packed-cpu_x1", "gemma3_tiny-ulysses+packed-cpu_x2"),
    ("llama_tiny-single-cpu_x1-b1", "llama_tiny-ulysses-cpu_x4-b1"),  # a rank without labels; repeated key heads
    ("llama_tiny-single+acc4-cpu_x1-b1", "llama_tiny-ulysses+dp2+acc2-cpu_x4-b1"),
]
QUICK = (LLAMA, "gemma3_tiny-ulysses+packed-cpu_x2")


@pytest.mark.parametrize(("alone", "shared"), slow_unless(lambda pair: pair[1] in QUICK, PAIRS))
def test_ranks_train_as_one(measure, alone, shared):
    """Loss, gradient norm and update, whatever the parts' numbers of labels."""
    single, parallel = measure(alone), measure(shared)

    assert worst(single, parallel, "loss") < BOUND
    assert worst(single, parallel, "gradient_norm") < BOUND
    assert parallel.readings["update_error"].value < 1e-5


def test_each_rank_has_its_part(measure):
    """The evidence of rank 0, its activations, and four exchanges in each layer's forward and in its backward."""
    here, whole = measure(LLAMA), measure("llama_tiny-ddp-cpu_x2")
    activations = [one.readings["peak_memory_bytes"].parts["activations"] for one in (here, whole)]

    assert (here.engine["tokens"], here.engine["heads"]) == ("0 to 31 of 64", "2 of 4")
    assert here.engine["attention"] == "UlyssesSPAttentionHF"
    assert here.readings["collectives"].parts["all_to_all"] == 2 * 2 * 4  # two layers
    assert activations[0] < 0.6 * activations[1]
    assert here.readings["tokens_per_second"].value > 0


@pytest.mark.parametrize(
    ("fault", "says"),
    slow_unless(
        lambda case: "attends_alone" in case[0],
        [
            (
                f"{FAULTS}:attends_alone",
                "must attend through UlyssesSPAttentionHF, but the model attends by 'sdpa'",
            ),
            ("layout_faults:heads_not_exchanged", "must attend with 2 of 4 heads to 64 tokens, but does with 4 to 32"),
            ("layout_faults:no_average", "gradients are not reduced over the ranks"),
        ],
    ),
)
def test_what_does_not_share_sequences_ends_the_cell(measure, fault, says):
    """Attention to a rank's own part is another training, and parameters must stay equal."""
    broken = measure(LLAMA, fault)

    assert broken.outcome == "failed"
    assert says in broken.failure.message


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cell", "fault"),
    [(LLAMA, "exchange_lost"), ("gemma3_tiny-ulysses-cpu_x2", "masks_dropped")],
)
def test_other_attention_makes_another_update(measure, cell, fault):
    """All counts stay. An exchange that returns its input, and windows that see all tokens, show in the update."""
    assert measure(cell, f"{FAULTS}:{fault}").readings["update_error"].value > 1e-3


@pytest.mark.parametrize(
    ("cell", "says"),
    [
        ("t5_tiny-ulysses-cpu_x2", "t5_tiny is none of gemma3, gpt2, llama, mistral, qwen3"),
        ("mixtral_tiny-ulysses-cpu_x2", "its loss must be a sum over tokens"),
        ("llama_tiny-ulysses-cpu_x8", "llama_tiny's 4 heads are not divisible by 8 ranks"),
        ("llama_tiny-ulysses-cpu_x2-s63", "llama_tiny's 63 tokens are not divisible by 2 ranks"),
        ("llama_tiny-ulysses+eager-cpu_x2", "isn't currently supported"),
    ],
)
def test_a_model_that_cannot_be_divided_is_refused(catalog, cell, says):
    """Before anything is started."""
    with pytest.raises(Refused, match=says):
        parse_cell(cell, catalog)
