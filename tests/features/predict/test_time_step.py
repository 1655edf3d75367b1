"""The closed form of a step: its parts, its properties, and the constants and intervals that it is read with."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsuite.catalog.definitions import Layout
from perfsuite.catalog.registry import Catalog
from perfsuite.errors import Refused
from perfsuite.features.predict.time import fitted
from perfsuite.features.predict.time.constants import NETWORK, PUBLISHED, constants_of, machine_of
from perfsuite.features.predict.time.costs import (
    AttentionShape,
    Product,
    embedding_gradient_bytes,
    matmul,
    unfused_attention,
)
from perfsuite.features.predict.time.experts import exchange_experts, left_to_compute, reached
from perfsuite.features.predict.time.head import head
from perfsuite.features.predict.time.layer import KERNELS, layer
from perfsuite.features.predict.time.message_times import MessageGroup, exchange
from perfsuite.features.predict.time.products import products
from perfsuite.features.predict.time.setup import Setup
from perfsuite.features.predict.time.shape import Experts, decoder, gpt_layers, llama_layers
from perfsuite.features.predict.time.shape_config import shape_of
from perfsuite.features.predict.time.step import Breakdown, both, stage_times, step
from perfsuite.features.predict.time.work import Rates

CATALOG = Catalog(())
A100 = CATALOG.get("device", "a100_80g")
MACHINE = machine_of(A100)
CONSTANTS = constants_of(A100, "megatron")
GPT = decoder(gpt_layers(24, 2304, 24), 51200, positions=2048)
widths = st.sampled_from([1, 2, 4, 8])


@st.composite
def setups(draw) -> Setup:
    """A layout of GPT that divides its heads and layers."""
    tensor = draw(widths)
    return Setup(
        layout=Layout(pipeline=draw(widths), replicas=draw(widths), tensor=tensor),
        sequence=draw(st.sampled_from([512, 2048])),
        micro_batch=draw(widths),
        accumulation=draw(st.integers(1, 64)),
        sequence_parallel=tensor > 1 and draw(st.booleans()),
        overlapped=draw(st.booleans()),
        sharded=draw(st.sampled_from([frozenset(), frozenset({"optimizer"})])),
        recompute=draw(st.sampled_from(["none", "selective", "full"])),
        attention=draw(st.sampled_from(["flash", "unfused"])),
    )


@given(setups(), st.sampled_from(["flops", "memory_bandwidth", "link_bandwidth", "network_bandwidth"]), st.floats(1, 8))
def test_a_step_is_no_slower_on_a_faster_machine(setup, field, factor):
    """With each rate alone."""
    faster = dataclasses.replace(MACHINE, **{field: getattr(MACHINE, field) * factor})

    assert step(GPT, setup, faster, CONSTANTS).total <= step(GPT, setup, MACHINE, CONSTANTS).total * (1 + 1e-9)


@given(setups())
def test_a_step_takes_longer_for_more_samples(setup):
    """Twice the micro-batches; or twice as large ones, unless it waits for the host in both."""
    more = dataclasses.replace(setup, accumulation=setup.accumulation * 2)
    larger = dataclasses.replace(setup, micro_batch=setup.micro_batch * 2)
    seconds = step(GPT, setup, MACHINE, CONSTANTS).total

    assert step(GPT, more, MACHINE, CONSTANTS).total > seconds
    assert step(GPT, larger, MACHINE, CONSTANTS).total >= seconds * (1 - 1e-9)


@given(setups())
def test_no_part_is_negative(setup):
    """And the total is their sum."""
    found = step(GPT, setup, MACHINE, CONSTANTS)

    assert all(seconds >= 0 for seconds in found.parts().values())
    assert found.total == pytest.approx(sum(found.parts().values()))


@given(setups())
def test_no_layout_beats_the_best_matmul(setup):
    """Model FLOPs per second and rank stay below the fastest matmul that was measured."""
    flops = GPT.model_flops(setup.sequence) * setup.samples / setup.ranks
    if setup.attention == "flash":  # causal attention is halved in the kernel, but not in model FLOPs
        flops -= 6 * 24 * 2304 * setup.sequence**2 * setup.samples / setup.ranks

    assert flops / step(GPT, setup, MACHINE, CONSTANTS).total <= MACHINE.matmul_flops


@given(st.sampled_from([1, 2, 4, 8, 16, 32]), st.integers(1, 8))
def test_replicas_do_not_scale_superlinearly(replicas, accumulation):
    """With the same work for each, a step takes no less with more replicas."""
    one = Setup(sequence=2048, micro_batch=4, accumulation=accumulation)
    many = dataclasses.replace(one, layout=Layout(replicas=replicas))

    assert step(GPT, many, MACHINE, CONSTANTS).total >= step(GPT, one, MACHINE, CONSTANTS).total


def test_a_sharded_optimizer_scales_superlinearly_for_a_stated_cause():
    """ZeRO-1 divides the optimizer's bytes, so its part of the step falls with the replicas."""
    setup = Setup(sequence=2048, sharded=frozenset({"optimizer"}))
    many = dataclasses.replace(setup, layout=Layout(replicas=8))

    assert step(GPT, many, MACHINE, CONSTANTS).optimizer == pytest.approx(
        step(GPT, setup, MACHINE, CONSTANTS).optimizer / 8
    )


def test_one_rank_sends_nothing():
    """No message, no bubble."""
    found = step(GPT, Setup(sequence=2048, micro_batch=8), MACHINE, CONSTANTS)

    assert (found.tensor, found.sends, found.gathers, found.data, found.bubble) == (0, 0, 0, 0, 0)


def test_full_recomputation_repeats_the_forward():
    """Kernels take less than 8/6 of the time, since the head is not repeated; without the last matmul, less again."""
    plain = Setup(sequence=2048, micro_batch=8)
    full = dataclasses.replace(plain, recompute="full")
    early = dataclasses.replace(full, early_stop=True)
    seconds = [step(GPT, one, MACHINE, CONSTANTS).compute for one in (plain, early, full)]

    assert seconds[0] < seconds[1] < seconds[2]
    assert 1.2 < seconds[2] / seconds[0] < 1.4


def test_a_small_layer_waits_for_the_host():
    """One token per layer: the launch time decides."""
    found = step(decoder(gpt_layers(10, 256, 4), 1000), Setup(sequence=1), MACHINE, CONSTANTS)

    assert found.total - found.data - found.optimizer == pytest.approx(10 * CONSTANTS.launch_layer, rel=1e-3)


def test_host_and_device_together_take_longer_than_either():
    """An eighth longer if both need as long, and no longer than the one that needs twice as long."""
    assert both(1.0, 1.0) == pytest.approx(1.12, abs=0.01)
    assert both(2.0, 1.0) == both(1.0, 2.0) == pytest.approx(2.0, rel=0.01)
    assert both(1.0, 0.0) == 1.0


def test_gradients_beside_backward_cost_less():
    """Overlapped messages are hidden in part."""
    late = Setup(layout=Layout(replicas=8), sequence=2048, micro_batch=4)
    early = dataclasses.replace(late, overlapped=True)

    assert step(GPT, early, MACHINE, CONSTANTS).data < step(GPT, late, MACHINE, CONSTANTS).data


def test_tensor_messages_in_pieces_cost_less():
    """Those of forward are hidden too; a rank alone sends none."""
    whole = Setup(layout=Layout(tensor=4), sequence=2048, micro_batch=4, sequence_parallel=True)
    pieces = dataclasses.replace(whole, tensor_pipelined=True)
    alone = Setup(sequence=2048, tensor_pipelined=True)
    seconds = [step(GPT, one, MACHINE, CONSTANTS).tensor for one in (alone, pieces, whole)]

    assert seconds[0] == 0 < seconds[1] < seconds[2]


def test_sends_are_hidden_beside_other_chunks_only():
    """A rank with one chunk has nothing else to compute."""
    two = Setup(layout=Layout(pipeline=4), sequence=2048, micro_batch=4, accumulation=8, interleave=2)
    one = dataclasses.replace(two, interleave=1)

    def sends(setup: Setup) -> float:
        return step(GPT, setup, MACHINE, CONSTANTS).sends

    assert sends(dataclasses.replace(one, sends_overlapped=True)) == sends(one)
    assert 0 < sends(dataclasses.replace(two, sends_overlapped=True)) < sends(two)


def test_both_ends_of_a_pipeline_have_one_neighbour():
    """The last stage has the head, so it is the slowest and counts; with stages of equal cost a middle one does."""
    setup = Setup(layout=Layout(pipeline=4), sequence=2048, micro_batch=4, accumulation=8)
    stages = stage_times(GPT, setup, MACHINE, CONSTANTS)
    sends = [stage["sends"] for stage in stages]

    assert sends == pytest.approx([sends[0], 2 * sends[0], 2 * sends[0], sends[0]])
    assert step(GPT, setup, MACHINE, CONSTANTS).sends == pytest.approx(8 * sends[-1])
    assert step(GPT, dataclasses.replace(setup, interleave=2), MACHINE, CONSTANTS).sends > 8 * 2 * sends[-1]


@pytest.mark.parametrize(("recompute", "share"), [("none", 1.0), ("full", 4 / 3)])
def test_every_kernel_has_a_gap(recompute, share):
    """One layer more of the same width; what is computed again is launched again."""
    setup = Setup(sequence=2048, micro_batch=4, recompute=recompute)
    [stack] = GPT.stacks
    without, with_gaps = (
        layer(stack, setup, Rates.of(MACHINE, CONSTANTS), dataclasses.replace(CONSTANTS, gap=gap))
        for gap in (0.0, 1e-6)
    )

    assert with_gaps.device - without.device == pytest.approx(KERNELS * 1e-6 * share)


def test_chunks_give_gradients_more_time():
    """Four stages of two chunks: the second chunk is complete 4/2 micro-batches of a stage before the first.

    With the half that the first still computes itself, 2.5 times as much is hidden of gradients that outlast it.
    """
    one = Setup(
        layout=Layout(pipeline=4, replicas=8),
        sequence=2048,
        micro_batch=8,
        accumulation=8,
        gradient_bytes=10**6,
        parameter_bytes_moved=0.0,
    )
    two = dataclasses.replace(one, interleave=2)
    hidden = [
        step(GPT, setup, MACHINE, CONSTANTS).data
        - step(GPT, dataclasses.replace(setup, overlapped=True), MACHINE, CONSTANTS).data
        for setup in (one, two)
    ]

    assert hidden[1] / hidden[0] == pytest.approx(2.5, rel=0.05)


def test_offload_moves_the_optimizer_to_the_host():
    """Its seconds have a part of their own."""
    found = step(GPT, Setup(sequence=2048, offload=True), MACHINE, CONSTANTS)

    assert found.optimizer == 0
    assert found.offload > 0


@pytest.mark.parametrize(
    ("model", "share"),
    [("gpt_1b7", 0.002), ("gpt_1t", 0.001), ("llama_8b", 0.001), ("t5_11b", 0.001), ("gpt2_small", 0.01)],
)
def test_the_shape_has_the_models_parameters(model, share):
    """Within the norms and biases, which it leaves out."""
    found = CATALOG.get("model", model)

    assert shape_of(found).parameters == pytest.approx(found.parameters, rel=share)


def test_model_flops_of_a_decoder():
    """72BLsh²(1+s/6h+V/12hL) of arXiv 2205.05198."""
    s, h, layers, v = 2048, 2304, 24, 51200

    assert GPT.model_flops(s) == pytest.approx(72 * layers * s * h**2 * (1 + s / (6 * h) + v / (12 * h * layers)))


def test_a_shape_without_dimensions_is_refused():
    """The message names what the config lacks."""
    model = dataclasses.replace(CATALOG.get("model", "gpt2_small"), config={"hidden_size": 8})

    with pytest.raises(Refused, match="num_hidden_layers or n_layer"):
        shape_of(model)


def test_a_device_without_constants_is_refused():
    """The message names those that have some."""
    with pytest.raises(Refused, match=r"known are .*a100_80g"):
        machine_of(dataclasses.replace(A100, name="mi250x", compute_capability=None))


@pytest.mark.parametrize("generation", sorted(PUBLISHED["generations"]))
def test_constants_are_physical(generation):
    """No share of a rate is above 1, and no byte is saved below the fused kernels' by much."""
    everywhere = fitted.VALUES["all"]
    own = dict(fitted.VALUES[generation])
    own.pop("permute", None)  # a factor
    shares = [own["matmul"] * own.pop("fp4", 1.0), *own.values(), NETWORK]
    shares += PUBLISHED["generations"][generation].values()
    shares += [everywhere[name] for name in ("overlap", "crossing")]

    assert all(0 < share <= 1 for share in shares)
    assert everywhere["traffic"] >= everywhere["traffic_fused"] >= 0.8


def test_no_constant_is_beyond_its_bounds():
    """And there are no more than 29 of them, four of which are TPUs'."""
    for group, values in fitted.VALUES.items():
        for name, value in values.items():
            low, high = fitted.BOUNDS[group][name]
            assert low <= value <= high, name
    assert sum(map(len, fitted.VALUES.values())) <= 29


def test_a_breakdown_names_every_part():
    """As a dictionary too."""
    assert Breakdown(compute=1.0, bubble=2.0).parts()["bubble"] == 2.0
    assert Breakdown(compute=1.0, bubble=2.0).total == 3.0


def test_sharded_parameters_come_in_messages():
    """A message per matrix costs more latency than one per layer; small vectors that stay whole follow the step."""
    setup = Setup(
        layout=Layout(shards=8),
        sequence=2048,
        sharded=frozenset({"parameters", "gradients", "optimizer"}),
        overlapped=True,
    )
    bare = dataclasses.replace(CONSTANTS, overlap=0.0)
    changed: tuple[dict[str, Any], ...] = ({}, {"layer_messages": 4}, {"persistent": 10})
    one, four, kept = (step(GPT, dataclasses.replace(setup, **options), MACHINE, bare) for options in changed)
    latency = exchange("all_gather", 2 * GPT.hidden, MessageGroup(8), Rates.of(MACHINE, bare).links)

    assert four.gathers > one.gathers
    assert four.data == one.data and four.compute == one.compute
    assert kept.data - one.data == pytest.approx(10 * latency)


def test_the_gradient_of_an_embedding():
    """torch writes it dense, and whole on every tensor-parallel rank; that of a tied head is added to it."""
    assert embedding_gradient_bytes(800, 100, 4, tied=False) == 3200
    assert embedding_gradient_bytes(800, 100, 4, tied=True) == 3200 + 1200

    plain = Setup(sequence=2048)
    counted = dataclasses.replace(plain, eager=("llama", "half"))
    rates, tied = Rates.of(MACHINE, CONSTANTS), dataclasses.replace(GPT, tied=True)
    more = head(tied, counted, rates).backward - head(tied, plain, rates).backward
    assert more == pytest.approx(2 * 4 * GPT.vocabulary * GPT.hidden / rates.memory)


def test_transformers_multiplies_queries_keys_values_and_gate_apart():
    """Small products fill a device less."""
    llama = decoder(llama_layers(2, 512, 8, 1024), 1000)
    counted = Setup(sequence=128, eager=("llama", "half"))
    rates = Rates.of(MACHINE, CONSTANTS)
    parts = [(128, width, 512) for width in (512, 512, 512, 1024, 1024)] + [(128, 512, 512), (128, 512, 1024)]
    forward = sum(matmul(Product(*part), rates.matmul, rates.memory, rates.multiprocessors) for part in parts)

    assert products(llama.stacks[0], counted, rates, 128, 1)[0] == pytest.approx(forward)
    fused = dataclasses.replace(counted, eager=None)
    assert products(llama.stacks[0], fused, rates, 128, 1)[0] < forward


def test_a_product_that_is_not_aligned_takes_longer():
    """Tensor cores load 16 bytes at once: eight elements of half precision."""
    aligned, apart = (matmul(Product(4096, 4096, k), 1e14, 1e12, 108) for k in (1024, 1020))

    assert apart > 1.9 * aligned


def test_a_head_that_is_not_aligned_takes_longer():
    """Products of separate kernels with heads of 70 take more than twice as long as with heads of 64."""
    shapes = (AttentionShape(8192, 2048, 8, width) for width in (64, 70))
    separate = [unfused_attention(shape, 1e14, 1e15, backward=False, dropout=False) for shape in shapes]

    assert separate[1] > 1.9 * separate[0]


def test_products_of_many_experts_share_waves():
    """64 small products take less than 64 times one of them, which leaves multiprocessors idle."""
    one = matmul(Product(128, 512, 1024), 1e14, 1e13, 108)

    assert matmul(Product(128, 512, 1024, groups=64), 1e14, 1e13, 108) < 32 * one


@pytest.mark.parametrize("precision", ["fp8", "mxfp8", "nvfp4"])
def test_fewer_bits_are_faster_where_products_decide(precision):
    """Large products are; small ones have to be quantised too."""
    device = CATALOG.get("device", "gb200")
    machine, constants = machine_of(device, node=4), constants_of(device, "megatron_core")
    large, small = decoder(gpt_layers(2, 16384, 128), 1000), decoder(gpt_layers(2, 256, 2), 1000)

    def gain(shape):
        half = Setup(sequence=8192, attention="flash3", graphs="all")
        fewer = dataclasses.replace(half, precision=precision)
        return step(shape, half, machine, constants).compute / step(shape, fewer, machine, constants).compute

    assert 1.2 < gain(large) < 4
    assert gain(small) < gain(large)


def test_nodes_wait_for_the_slowest():
    """More nodes wait longer, and one waits for none."""
    found = [
        step(GPT, Setup(sequence=2048, layout=Layout(replicas=ranks)), MACHINE, CONSTANTS) for ranks in (8, 16, 512)
    ]
    shares = [one.waiting / one.compute for one in found]

    assert shares[0] == 0 < shares[1] < shares[2] < 0.05


def test_experts_send_less_to_nodes_by_fused_kernels():
    """A token of eight experts goes once to each of two nodes, and eight times by NCCL's all-to-all."""
    links = Rates.of(MACHINE, CONSTANTS).links
    experts = Experts(count=64, chosen=8, width=1024)
    fused, plain = (exchange_experts(1e8, experts, kind, MessageGroup(16), links) for kind in (True, False))
    limited = exchange_experts(1e8, dataclasses.replace(experts, nodes=1), True, MessageGroup(16), links)

    assert reached(2, 8) == pytest.approx(2 * (1 - 0.5**8))
    assert limited <= fused < plain
    assert exchange_experts(1e8, experts, True, MessageGroup(1), links) == 0


@pytest.mark.parametrize(("overlapped", "nodes", "longer"), [(True, 2, 108 / 88), (True, 1, 1), (False, 2, 1)])
def test_exchanges_between_nodes_take_multiprocessors(overlapped, nodes, longer):
    """20 of an A100's 108, if they run beside computation."""
    stack = dataclasses.replace(GPT.stacks[0], experts=Experts(count=16, chosen=2, width=512))
    setup = Setup(sequence=2048, experts=8 * nodes, dispatch_overlapped=overlapped)

    assert 1 / left_to_compute(stack, setup, Rates.of(MACHINE, CONSTANTS)) == pytest.approx(longer)


def test_sequence_parallelism_has_more_to_launch():
    """By an eighth; operators that are computed again gather again."""
    rates = Rates.of(MACHINE, CONSTANTS)
    plain = Setup(sequence=2048, layout=Layout(tensor=2))
    parallel = dataclasses.replace(plain, sequence_parallel=True)
    again = dataclasses.replace(parallel, recompute="operators")
    one, other, more = (layer(GPT.stacks[0], setup, rates, CONSTANTS) for setup in (plain, parallel, again))

    assert other.launch == pytest.approx(1.12 * one.launch)
    gather = exchange("all_gather", 2048 * 2304 * 2, MessageGroup(2), rates.links)
    assert more.tensor - other.tensor == pytest.approx(2 * gather)


def test_a_rack_is_one_domain_of_links():
    """Eight tensor-parallel ranks of two nodes of four send over NVLink in a rack of GB200."""
    rack, node = (machine_of(CATALOG.get("device", name), node=4) for name in ("gb200", "b200"))
    setup = Setup(layout=Layout(tensor=8), sequence=4096, sequence_parallel=True)
    constants = constants_of(CATALOG.get("device", "b200"), "megatron_core")
    shape = decoder(gpt_layers(2, 8192, 64), 1000)

    assert (rack.domain, node.domain) == (72, 4)
    assert step(shape, setup, rack, constants).tensor < step(shape, setup, node, constants).tensor / 3
