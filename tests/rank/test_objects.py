"""Objects that a step leaves alive are counted, by type, and none where none are left."""

import pytest
from sampling import slow_unless

ENGINES = ["gpt2_tiny-single-cpu_x1", "gpt2_tiny-ddp+acc2+hf_trainer-cpu_x2", "t5_tiny-zero3+bf16-cpu_x2"]


@pytest.mark.parametrize("cell", slow_unless(lambda cell: "t5" not in cell, ENGINES))
def test_a_good_step_leaves_nothing(measure, cell):
    """Neither the libraries nor perfsuite's own meters keep anything per step."""
    left = measure(cell, steps=3).readings["leaked_objects"]

    assert (left.value, left.suspects) == (0, {})


def test_a_hoard_is_counted_and_named(measure):
    """Three dictionaries and four lists of every step, by their types."""
    left = measure("gpt2_tiny-single-cpu_x1", "hoards", steps=3).readings["leaked_objects"]

    assert left.value == 7
    assert left.parts == {"builtins": 7}
    assert left.suspects == {"builtins: builtins.list": 4, "builtins: builtins.dict": 3}
