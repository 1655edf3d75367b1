"""ZeRO++'s second partition: the numbers of stage 3, more memory, and a gather for backward."""

import re

import pytest
from parity import worst

from perfsuite.catalog.cell import parse_cell
from perfsuite.errors import Refused

PLAIN, TWICE = "llama_tiny-zero3+nodrop-cpu_x4", "llama_tiny-zero3+hpz2+nodrop-cpu_x4"


def test_a_second_partition_changes_no_number(measure):
    """Backward gathers all again, from half of the ranks. Each keeps half of the parameters that it gathers."""
    plain, twice = measure(PLAIN), measure(TWICE)
    sent = [one.readings["communication_bytes"].parts for one in (plain, twice)]
    kept = [one.readings["peak_memory_bytes"].parts["parameters"] for one in (plain, twice)]
    half = twice.readings["communication_theory_bytes"].parts["all_gather"] // 2 // 2

    assert worst(plain, twice, "loss") == worst(plain, twice, "gradient_norm") == 0
    assert sent[1]["reduce_scatter"] == sent[0]["reduce_scatter"]
    assert sent[1]["all_gather"] == pytest.approx(2 * sent[0]["all_gather"], rel=0.005)
    assert kept[1] - kept[0] == pytest.approx(half, rel=0.01)


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("llama_tiny-zero3+hpz2-cpu_x2", "groups of 2 of 2 ranks: it takes several equal groups, and none fits"),
        ("llama_tiny-zero3+hpz3-cpu_x4", "groups of 3 of 4 ranks"),
        ("llama_tiny-zero2+hpz2-cpu_x4", "zero2 is not DeepSpeed's ZeRO stage 3"),
        ("llama_tiny-fsdp2+hpz2-cpu_x4", "fsdp2 is not DeepSpeed's ZeRO stage 3"),
        ("llama_tiny-zero3+hpz2+offload-cpu_x4", "offload keeps parameters off the device"),
        ("llama_tiny-zero3+qgz-cpu_x2", "kernels that it compiles for CUDA"),
    ],
)
def test_what_cannot_be_is_refused(catalog, cell, reason):
    """Before any rank starts."""
    with pytest.raises(Refused, match=re.escape(reason)):
        parse_cell(cell, catalog)
