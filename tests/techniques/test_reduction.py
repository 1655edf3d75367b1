"""When gradients of several micro-batches are reduced."""

import pytest
from parity import difference_of

from perfsuite.catalog.cell import parse_cell
from perfsuite.errors import Refused


def test_each_micro_batch_is_sent_and_the_step_is_the_same(measure):
    """Twice the gradients on the wire, in shards instead of whole ones."""
    last, each = (measure(f"llama_tiny-fsdp2+acc2{more}+nodrop-cpu_x2").readings for more in ("", "+reduce_each"))

    sent = [one["communication_bytes"].parts["reduce_scatter"] for one in (last, each)]

    assert sent[1] == 2 * sent[0]
    assert each["communication_theory_bytes"].parts["reduce_scatter"] == sent[1]
    assert each["peak_memory_bytes"].value <= last["peak_memory_bytes"].value
    assert difference_of(last, each) < 1e-5


@pytest.mark.parametrize(
    ("strategy", "reason"),
    [("fsdp2+reduce_each", r"add \+acc2"), ("zero3+acc2+reduce_each", "fsdp1 and fsdp2 have one")],
)
def test_others_are_refused(catalog, strategy, reason):
    """Before anything runs."""
    with pytest.raises(Refused, match=reason):
        parse_cell(f"llama_tiny-{strategy}-cpu_x2", catalog)
