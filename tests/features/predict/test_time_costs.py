"""The costs of a step one by one: against figures by hand, and properties that hold for every argument."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsuite.features.predict.time import costs
from perfsuite.features.predict.time.costs import Product
from perfsuite.features.predict.time.message_times import (
    FEW_RANKS,
    PASSES,
    STEP_NETWORK,
    Links,
    MessageGroup,
    bus_bandwidth,
    collective,
    exposed,
    point_to_point,
    wire_bytes,
)
from perfsuite.features.predict.time.pipeline_fill import balanced_stages, bubble, even_stages

LINKS = Links(link=200e9, network=20e9, node=8, start=8e-6, hop=3e-6)
EIGHT = 200e9 * (1 - FEW_RANKS / 8)  # what eight ranks of a node reach
TWO = 200e9 * (1 - FEW_RANKS / 2)
FILL = 64.0
sizes = st.integers(1, 20_000)
rates = st.floats(1e12, 1e16)
bandwidths = st.floats(1e11, 1e13)
messages = st.floats(1.0, 1e12)
kinds = st.sampled_from(sorted(PASSES))


def test_a_matmul_of_whole_waves_by_hand():
    """108 tiles of 256×128 on 108 multiprocessors are one wave of 2·256·128·(k + fill) FLOPs each."""
    k = 4096
    wave = 2 * 256 * 128 * (k + FILL) * 108

    assert costs.waves(Product(256 * 12, 128 * 9, k), 108, FILL) == pytest.approx(wave)
    assert costs.matmul(Product(256 * 12, 128 * 9, k), 1e14, 1e13, 108) == pytest.approx(
        2 * 256 * 128 * k * 108 / 1e14 + costs.FILL
    )


def test_one_tile_too_many_is_a_second_wave():
    """109 tiles take longer than 108, although they are less than 1 % more work."""
    k = 1024  # too shallow to split

    whole, more = (costs.waves(Product(256 * tiles, 128, k), 108, FILL) for tiles in (108, 109))
    assert more > 1.2 * whole


def test_a_thin_matmul_waits_for_memory():
    """One row: the weight's bytes at the bandwidth."""
    seconds = costs.matmul(Product(1, 8192, 8192), 1e15, 1e12, 108)

    assert seconds == pytest.approx(2 * (8192 * 8192 + 2 * 8192) / 1e12)


@given(sizes, sizes, sizes, rates, bandwidths)
def test_a_matmul_never_beats_the_peak(m, n, k, flops, bandwidth):
    """Quantisation only adds work."""
    assert costs.matmul(Product(m, n, k), flops, bandwidth, 108) >= 2 * m * n * k / flops * (1 - 1e-12)


@given(sizes, sizes, sizes, rates, bandwidths, st.floats(1, 8))
def test_a_matmul_is_no_slower_on_a_faster_device(m, n, k, flops, bandwidth, factor):
    """With the peak, and with the bandwidth."""
    slow = costs.matmul(Product(m, n, k), flops, bandwidth, 108) * (1 + 1e-12)  # a factor of nearly 1 is rounded

    assert costs.matmul(Product(m, n, k), flops * factor, bandwidth, 108) <= slow
    assert costs.matmul(Product(m, n, k), flops, bandwidth * factor, 108) <= slow


@given(sizes, sizes, sizes, sizes)
def test_a_matmul_takes_no_less_with_more_rows(m, n, k, more):
    """Tiles and waves are rounded up, so work rises in steps and never falls."""
    assert costs.waves(Product(m + more, n, k), 108, FILL) >= costs.waves(Product(m, n, k), 108, FILL)


def test_attention_by_hand():
    """4·s·s·width FLOPs for one sequence, half of them if a token sees those before it only."""
    whole = costs.flash_attention(2048, 2048, 4096, False, 1e14)

    assert whole == pytest.approx(4 * 2048**2 * 4096 / 1e14)
    assert costs.flash_attention(2048, 2048, 4096, True, 1e14) == pytest.approx(whole / 2)


def test_the_optimizer_by_hand():
    """A billion parameters at 40 bytes each over 2 TB/s take 20 ms."""
    assert costs.optimizer(1e9, 2e12) == pytest.approx(0.020)


def test_an_offloaded_optimizer_pays_the_link_and_the_host():
    """A billion parameters: 4 GB over 32 GB/s, and the host's Adam, which eight devices of a node share."""
    alone, shared = costs.offload(1e9, 32e9), costs.offload(1e9, 32e9, 1, 8)

    assert alone == pytest.approx(4 / 32 + 1e9 / costs.HOST_ADAM)
    assert shared - 4 / 32 == pytest.approx(8 * (alone - 4 / 32))
    assert costs.offload(1e9, 32e9, 3) - alone == pytest.approx(2 * 2 / 32)  # two more micro-batches' gradients


@given(kinds, messages, st.integers(1, 64))
def test_a_collective_of_one_rank_costs_nothing(kind, size, stride):
    """No seconds, and no bytes."""
    assert collective(kind, size, MessageGroup(1, stride), LINKS) == 0
    assert wire_bytes(kind, size, 1) == 0


@given(messages, st.integers(2, 4096))
def test_an_all_reduce_sends_what_a_scatter_and_a_gather_send(size, ranks):
    """Bytes are conserved between the two spellings of one sum."""
    both = wire_bytes("reduce_scatter", size, ranks) + wire_bytes("all_gather", size, ranks)

    assert wire_bytes("all_reduce", size, ranks) == pytest.approx(both)


@given(kinds, messages, st.integers(2, 512), st.integers(1, 64), st.floats(1, 16))
def test_a_collective_is_no_slower_on_faster_links(kind, size, ranks, stride, factor):
    """With both bandwidths."""
    faster = dataclasses.replace(LINKS, link=LINKS.link * factor, network=LINKS.network * factor)

    assert collective(kind, size, MessageGroup(ranks, stride), faster) <= collective(
        kind, size, MessageGroup(ranks, stride), LINKS
    )


@given(kinds, messages, st.integers(2, 512), st.floats(1, 16))
def test_a_collective_takes_no_less_for_more_bytes(kind, size, ranks, factor):
    """For any number of ranks."""
    assert collective(kind, size * factor, MessageGroup(ranks), LINKS) >= collective(
        kind, size, MessageGroup(ranks), LINKS
    )


def test_a_ring_by_hand():
    """Eight ranks of one node gather 1 GB: seven steps, and seven eighths of the bytes over the link."""
    assert collective("all_gather", 1e9, MessageGroup(8), LINKS) == pytest.approx(8e-6 + 7 * 3e-6 + 0.875e9 / EIGHT)


def test_a_ring_over_nodes_by_hand():
    """Sixteen ranks of two nodes: one step between nodes; the bytes pass eight cards of a node at once."""
    seconds = collective("all_gather", 1e9, MessageGroup(16), LINKS)

    assert seconds == pytest.approx(8e-6 + 14 * 3e-6 + STEP_NETWORK + 15 / 16 * 1e9 / 160e9)


@pytest.mark.parametrize(
    ("ranks", "stride", "inside", "bandwidth"),
    [(8, 1, 8, EIGHT), (16, 1, 8, 160e9), (4, 8, 1, 20e9), (4, 4, 2, 40e9), (2, 6, 2, TWO), (64, 1, 8, 160e9)],
)
def test_which_links_a_group_uses(ranks, stride, inside, bandwidth):
    """Inside a node NVLink; between nodes one card for each of the group's devices in a node."""
    group = MessageGroup(ranks, stride)

    assert group.inside(8) == inside
    assert bus_bandwidth(group, LINKS) == bandwidth


def test_a_send_inside_a_node_uses_the_link():
    """Two stages in a node, and two in two nodes."""
    assert point_to_point(1e9, MessageGroup(2, 4), LINKS) == pytest.approx(8e-6 + 3e-6 + 1e9 / TWO)
    assert point_to_point(1e9, MessageGroup(2, 8), LINKS) == pytest.approx(8e-6 + STEP_NETWORK + 1e9 / 20e9)
    assert point_to_point(1e9, MessageGroup(1, 8), LINKS) == 0


@given(st.floats(0, 10), st.floats(0, 10), st.floats(0, 1))
def test_what_is_exposed(compute, message, overlap):
    """At most the whole message, at least what outlasts the computation."""
    left = exposed(compute, message, overlap)

    assert max(0.0, message - compute) - 1e-9 <= left <= message + 1e-9


def test_a_bubble_by_hand():
    """Of four equal stages with micro-batches of 1 s, and with two chunks per rank (arXiv 2104.04473)."""
    assert bubble((1.0,) * 4) == 3
    assert bubble((1.0,) * 4, 2) == 1.5
    assert bubble((1.0,), 1) == 0


@given(st.lists(st.floats(0.01, 10), min_size=1, max_size=64), st.integers(1, 512))
def test_a_pipeline_never_beats_equal_stages(stages, micro_batches):
    """Its ranks together work for Σ t per micro-batch: the step takes at least their mean."""
    assert micro_batches * max(stages) + bubble(stages) >= micro_batches * sum(stages) / len(stages) * (1 - 1e-9)


@given(st.integers(1, 128), st.floats(0, 20), st.integers(1, 32))
def test_every_layer_has_a_stage(layers, head, stages):
    """Neither division loses a layer."""
    assert sum(balanced_stages(layers, head, stages)) == layers
    assert sum(even_stages(layers, stages)) == pytest.approx(layers)


def test_a_heavy_head_takes_layers_from_the_last_stage():
    """A head of four layers, 16 layers and 8 stages: the last stage has the head alone."""
    assert balanced_stages(16, 4.0, 8)[-1] == 0
