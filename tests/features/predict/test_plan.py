"""The planner: what it tries, what fits, which layout it takes, and what the command prints."""

import dataclasses
import json
import re
import sys

import pytest

from perfsuite.catalog.cell import parse_hardware
from perfsuite.catalog.definitions import Layout
from perfsuite.catalog.registry import Catalog
from perfsuite.cli.main import main
from perfsuite.errors import FileError, Refused, UsageError
from perfsuite.features.predict.plan.answer import Wish, plan
from perfsuite.features.predict.plan.layout_memory import (
    FUSED,
    KEPT,
    RESERVED,
    activation_bytes,
    host_bytes,
    layer_bytes,
    needed_bytes,
    state_bytes,
    tensor_bytes,
)
from perfsuite.features.predict.plan.layout_names import name_of
from perfsuite.features.predict.plan.planned import PUBLISHED, of_model, planned
from perfsuite.features.predict.plan.question import StepWish, on_hardware, samples_of
from perfsuite.features.predict.plan.room import LIKELY, chance_to_fit
from perfsuite.features.predict.plan.search import layouts, search
from perfsuite.features.predict.prediction import Plan
from perfsuite.features.predict.time.constants import THROUGH_HOST, machine_of
from perfsuite.features.predict.time.setup import Setup
from perfsuite.features.predict.time.shape import decoder, gpt_layers
from perfsuite.features.predict.time.software import SOFTWARE
from perfsuite.records import codec
from perfsuite.system.units import parse_days, parse_network

CATALOG = Catalog(())
GPT = decoder(gpt_layers(24, 1024, 16), 50000)
OPTIMIZER, ALL = frozenset({"optimizer"}), frozenset({"optimizer", "gradients", "parameters"})


def question(model, hardware, samples=512, sequence=None, **asked):
    one = planned(model, CATALOG, {}).with_lengths(sequence, None)
    return on_hardware(one, parse_hardware(hardware, CATALOG), StepWish(samples=samples, **asked))


def model_of(name):
    return of_model(CATALOG.get("model", name))


def test_model_state_by_hand():
    """2 + 2 + 12 bytes per parameter; ZeRO-1 divides the 12."""
    setup = Setup(sequence=2048, layout=Layout(replicas=4))

    assert state_bytes(GPT, setup) == pytest.approx(16 * GPT.parameters)
    assert state_bytes(GPT, dataclasses.replace(setup, sharded=OPTIMIZER)) == pytest.approx(7 * GPT.parameters)


def test_sharded_parameters_leave_two_whole_layers():
    """ZeRO-3 divides all 16 bytes, and gathers layers as they are needed."""
    setup = Setup(sequence=2048, layout=Layout(shards=8), sharded=ALL)
    layer = GPT.stacks[0].layer_parameters

    assert state_bytes(GPT, setup) == pytest.approx(2 * GPT.parameters + 2 * layer * 4)


def test_activations_of_a_layer_by_hand():
    """sbh(34 + 5as/h) of arXiv 2205.05198, with dropout and separate attention kernels."""
    setup = Setup(sequence=2048, micro_batch=4, attention="unfused", dropout=True)
    s, b, h, a = 2048, 4, 1024, 16

    assert layer_bytes(GPT.stacks[0], setup) == pytest.approx(s * b * h * (34 + 5 * a * s / h))


def test_sequence_parallelism_divides_all_activations():
    """34/t instead of 10 + 24/t."""
    setup = Setup(sequence=2048, dropout=True, layout=Layout(tensor=8))
    parallel = dataclasses.replace(setup, sequence_parallel=True)

    assert layer_bytes(GPT.stacks[0], setup) == pytest.approx(2048 * 1024 * (10 + 24 / 8))
    assert layer_bytes(GPT.stacks[0], parallel) == pytest.approx(2048 * 1024 * 34 / 8)


def test_recomputation_needs_less_memory():
    """Only each layer's input is kept; the logits, 10 bytes each, stay."""
    setup = Setup(sequence=2048, micro_batch=8, recompute="full")
    tokens = 2048 * 8

    assert activation_bytes(GPT, setup) == pytest.approx(tokens * (24 * 2 * 1024 + 10 * 50000))
    assert activation_bytes(GPT, setup) < activation_bytes(GPT, dataclasses.replace(setup, recompute="none"))


@pytest.mark.parametrize("recompute", ["selective", "full"])
def test_scores_that_are_computed_again_are_there_once(recompute):
    """While one layer computes its scores again, it keeps 5as/h of arXiv 2205.05198, which no other layer does."""
    setup = Setup(sequence=2048, recompute=recompute)
    unfused = dataclasses.replace(setup, attention="unfused")
    short = dataclasses.replace(GPT, vocabulary=512)  # few logits: the peak is a layer's
    scores = 5 * 2048 * 2048 * 16

    added = activation_bytes(short, unfused) - activation_bytes(short, setup)
    logits = 10 * 2048 * 512 if recompute == "selective" else 0  # else the layer is larger than they are
    assert added == pytest.approx(scores - logits)


def test_what_is_offloaded_is_on_the_host():
    """16 bytes per parameter, divided by the replicas; nothing without offload."""
    setup = Setup(sequence=2048, layout=Layout(replicas=4), offload=True)

    assert host_bytes(GPT, setup) == pytest.approx(16 * GPT.parameters / 4)
    assert host_bytes(GPT, dataclasses.replace(setup, offload=False)) == 0


def test_software_keeps_what_it_gathers():
    """nanotron keeps whole inputs of tensor-parallel layers, and copies of hidden states."""
    kept = KEPT["nanotron"]
    parallel = Setup(layout=Layout(tensor=8), sequence=2048, sequence_parallel=True)
    elements = 2048 * 1024

    more = layer_bytes(GPT.stacks[0], parallel, kept) - layer_bytes(GPT.stacks[0], parallel)
    assert more == pytest.approx(elements * (6 / 8 + 3))
    more = layer_bytes(GPT.stacks[0], Setup(sequence=2048), kept) - layer_bytes(GPT.stacks[0], Setup(sequence=2048))
    assert more == pytest.approx(elements * 6)
    more = activation_bytes(GPT, Setup(sequence=2048), kept) - activation_bytes(GPT, Setup(sequence=2048), FUSED)
    assert more == pytest.approx(24 * 6 * elements)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("tp2 tp4 dp2 b2", "both 'tp2' and 'tp4'"),
        ("dp8 b1 ckpt ckpt_selective", "both 'ckpt' and 'ckpt_selective'"),
        ("dp8 b1 zero1 zero3", "both 'zero1' and 'zero3'"),
        ("dp8 b1 ckpt150%", "at most 100 %"),
        ("dp8 b1 ckpt0%", "more than 0 %"),
    ],
)
def test_a_layout_that_contradicts_itself_is_refused(words, reason, capsys):
    """No word wins over another, and no more than all layers are recomputed."""
    assert main(["plan", "llama_8b", "--hardware", "h100_x8", "--tokens", "1e9", "--layout", words]) == 2
    assert reason in capsys.readouterr().err


def test_a_node_that_nobody_has_is_refused(capsys):
    """With the usual way to write so many devices; a rack of 72 is one domain."""
    assert main(["plan", "llama_8b", "--hardware", "h100_x1000", "--tokens", "1e9"]) != 0
    assert "No node has 1000 h100: write h100_x8n125" in capsys.readouterr().err
    assert main(["plan", "llama_8b", "--hardware", "gb200_x72", "--tokens", "1e9"]) == 0


def test_a_product_that_adds_to_the_sum_returns_a_gradient_that_nobody_reads():
    """One of each shape of a layer's, in half precision, instead of a gradient for every parameter."""
    apart = Setup(sequence=2048, gradient_bytes=4)
    fused = dataclasses.replace(apart, parameter_bytes_moved=0.0)
    [stack] = GPT.stacks

    assert state_bytes(GPT, apart) - state_bytes(GPT, fused) == 2 * (GPT.parameters - stack.layer_parameters)


def test_fsdp_has_fp32_shards_and_makes_gradients_anew():
    """12 bytes per parameter: gradients take the place of the logits. The tables and two layers are gathered."""
    setup = Setup(sequence=2048, layout=Layout(shards=8), sharded=ALL, cross_entropy="compiled")
    layer, kept = GPT.stacks[0].layer_parameters, KEPT["torchtitan"]
    gathered = 2 * 1024 * 50000 * (1 if GPT.tied else 2) + 2 * 2 * layer

    assert state_bytes(GPT, setup, kept) == pytest.approx(12 * GPT.parameters / 8 + gathered, rel=0.01)
    assert tensor_bytes(GPT, setup, "torchtitan") == pytest.approx(
        state_bytes(GPT, setup, kept) + activation_bytes(GPT, setup, kept)
    )


def test_the_allocator_has_blocks_of_their_own_for_divided_gradients():
    """PyTorch's gradients are on another stream, so that what backward frees is of no use to them; XLA's are not."""
    setup = Setup(sequence=2048, layout=Layout(shards=8), sharded=ALL, cross_entropy="compiled")
    gradients = 4 * GPT.parameters / 8

    for stack, apart in (("torchtitan", gradients), ("maxtext", 0.0)):
        needed = needed_bytes(GPT, setup, stack)
        assert needed == pytest.approx(RESERVED * tensor_bytes(GPT, setup, stack) + apart, rel=0.001)


def test_a_compiled_cross_entropy_holds_less():
    """4 bytes per logit instead of 12, and no block of 2 that nothing fits into."""
    eager, compiled = (Setup(sequence=2048, cross_entropy=name) for name in ("torch", "compiled"))
    logits = 2048 * 50000

    assert tensor_bytes(GPT, eager) - tensor_bytes(GPT, compiled) == pytest.approx(8 * logits)
    assert needed_bytes(GPT, eager) - needed_bytes(GPT, compiled) == pytest.approx(RESERVED * 10 * logits)


def test_moments_of_8_bits():
    """6 bytes less for each parameter, in memory and, read and written, in the step."""
    asked = {"stack": "deepspeed", "options": {"optimizer": "adam8bit"}}
    plain, eight = (question("llama_8b", "h100_x8", **one) for one in ({"stack": "deepspeed"}, asked))
    layout = "tp1 pp1 dp8 b1 ckpt zero3"
    one, other = plain.setup(layout), eight.setup(layout)

    less = state_bytes(plain.shape, one) - state_bytes(plain.shape, other)
    assert less == pytest.approx((8 - 2 * (1 + 4 / 256)) * plain.shape.parameters / 8, rel=0.01)
    assert one.optimizer_bytes - other.optimizer_bytes == pytest.approx(12, abs=0.1)
    assert eight.step(other).optimizer < plain.step(one).optimizer


def test_every_layout_uses_all_ranks_and_the_whole_batch():
    """And divides heads and layers."""
    found = list(layouts(question("gpt_7b5", "a100_80g_x8n4")))

    assert len(found) > 100
    assert {one.ranks for one in found} == {32}
    assert {one.samples for one in found} == {512}
    assert all(32 % one.layout.tensor == 0 and 36 % one.layout.pipeline == 0 for one in found)


@pytest.mark.parametrize("model", ["llama_8b", "qwen3_235b_a22b", "t5_11b"])
@pytest.mark.parametrize("stack", SOFTWARE)
def test_a_layout_is_read_back_from_its_name(model, stack):
    """--layout takes what a plan prints: of every software, and with experts or an encoder."""
    asked = question(model, "h100_x8n4", 1024, stack=stack)

    for one in list(layouts(asked))[::7]:
        assert asked.setup(name_of(one)) == one, name_of(one)


def test_a_layout_has_nothing_that_its_software_has_not():
    """nanotron, for example, has neither ZeRO-3 nor chunks; DeepSpeed no tensor parallelism here."""
    nanotron = list(layouts(question("llama_8b", "h100_x8n4", stack="nanotron")))
    deepspeed = list(layouts(question("llama_8b", "h100_x8n4", stack="deepspeed")))

    assert {one.interleave for one in nanotron} == {1} and not any("parameters" in one.sharded for one in nanotron)
    assert {(one.layout.tensor, one.layout.pipeline) for one in deepspeed} == {(1, 1)}
    assert any(one.offload for one in deepspeed)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("tp8 pp1 dp2 b1", "its widths make 16 ranks, and there are 32"),
        ("tp1 pp1 dp32 b1 zero2", "megatron_core has no zero2; it has"),
        ("tp1 pp1 dp32 b3", "dp32 times b3 must divide it"),
        ("tp1 pp1 dp32 b1 sharp", "the word 'sharp'"),
        ("tp1 pp1 dp32 ep4 b1", "ep4 does not divide the model's experts"),
        ("tp1 pp32 dp1 v2 b1", "needs more than 32 layers"),
    ],
)
def test_a_refused_layout_says_why(words, said):
    """The reason, and what there is."""
    with pytest.raises(UsageError, match=re.escape(said)):
        question("llama_8b", "h100_x8n4").setup(words)


def test_the_usual_software():
    """Megatron-core on linked devices that have bf16; DeepSpeed for T5, and on cards that send through a host."""
    found = {
        (model, hardware): question(model, hardware, 1024).software.name
        for model, hardware in [
            ("llama_8b", "h100_x8"), ("gpt3_175b", "a100_80g_x8n16"), ("gpt_1b7", "v100_32g_x4"),
            ("t5_11b", "h100_x8"), ("llama_8b", "rtx3090_x8"), ("llama_8b", "rtx4090_x8"),
        ]
    }  # fmt: skip

    assert list(found.values()) == [
        "megatron_core", "megatron_core", "megatron", "deepspeed", "deepspeed", "deepspeed",
    ]  # fmt: skip
    assert question("llama_8b", "h100_x8").made(layout=Layout()).attention == "flash3"


def test_an_option_changes_what_it_names_alone():
    """And nothing else of the setup."""
    plain = question("llama_8b", "h100_x8").setup("tp2 pp1 dp4 b1 zero1")
    changed = question("llama_8b", "h100_x8", options={"attention": "flash", "step": "adam+norm"})
    other = changed.setup("tp2 pp1 dp4 b1 zero1")

    assert (other.attention, other.optimizer_bytes) == ("flash", 44.0)
    assert dataclasses.replace(other, attention=plain.attention, optimizer_bytes=plain.optimizer_bytes) == plain


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"speed": "on"}, "no option 'speed': known are attention"),
        ({"attention": "slow"}, "it must be one of triton, splash, flash, flash3, unfused"),
        ({"tensor_overlap": "some"}, "it must be one of none, backward, all"),
        ({"sequence_parallel": "yes"}, "it must be one of on, off"),
        ({"step": "adam+sgd"}, "known are adam, clip"),
        ({"imbalance": "0.5"}, "a number from 1 on"),
        ({"release": "24.01"}, "it must be one of 25.11, 26.02"),
        ({"optimizer": "sgd"}, "it must be one of adam, adam8bit"),
        ({"compile": "yes"}, "it must be one of on, layers, off"),
    ],
)
def test_a_wrong_option_of_a_stack_is_refused(option, said):
    """With the values that it may have."""
    with pytest.raises(UsageError, match=re.escape(said)):
        question("llama_8b", "h100_x8", options=option).setup("tp2 pp1 dp4 b1")


@pytest.mark.parametrize(
    ("hardware", "precision", "release", "wanted"),
    [
        ("gb300_x4n2", "mxfp8", "", ("all", True, True)),
        ("gb300_x4n2", "mxfp8", "26.04", ("attention", False, False)),
        ("gb300_x4n2", "bf16", "", ("all", True, False)),
        ("h100_x8", "fp8", "", ("none", False, False)),
    ],
)
def test_experts_run_as_the_release_has_them(hardware, precision, release, wanted):
    """CUDA graphs, overlap of dispatch, and attention in fp8, of the newest recipes or an older release's."""
    options = {"release": release} if release else {}
    found = question("qwen3_30b_a3b", hardware, precision=precision, options=options).made(layout=Layout())

    assert (found.graphs, found.dispatch_overlapped, found.attention_quantised) == wanted


def test_an_option_comes_before_a_recipe():
    """And a software without recipes has no release."""
    options = {"release": "26.04", "graphs": "none"}

    assert question("qwen3_30b_a3b", "gb300_x4n2", options=options).made(layout=Layout()).graphs == "none"
    with pytest.raises(UsageError, match="fsdp2 has no recipes by release"):
        question("llama_8b", "h100_x8", stack="fsdp2", options={"release": "26.04"}).setup("tp1 pp1 dp8 b1 zero3")


def test_a_precision_that_nothing_has_is_refused():
    """Neither a software nor a device."""
    with pytest.raises(UsageError, match="nanotron does not train in fp8"):
        question("llama_8b", "h100_x8", stack="nanotron", precision="fp8")
    with pytest.raises(UsageError, match="a100_80g has no fp8 products"):
        question("llama_8b", "a100_80g_x8", precision="fp8")


def test_lengths_are_the_models_own():
    """8,192 for Llama 3, 2,048 positions of a GPT, and T5's 512 and its target."""
    llama, gpt, t5 = (planned(name, CATALOG, {}) for name in ("llama_8b", "gpt3_175b", "t5_11b"))

    assert (llama.sequence, gpt.sequence) == (8192, 2048)
    assert (t5.sequence, t5.target) == (
        CATALOG.get("model", "t5_11b").workload.sequence_length,
        CATALOG.get("model", "t5_11b").workload.target_length,
    )


def test_a_config_of_transformers_is_a_model(tmp_path):
    """A file or its folder. Experts, shared ones, latent attention and later tokens are read by their names."""
    config = PUBLISHED["deepseek_v3"] | {"architectures": ["DeepseekV3ForCausalLM"], "n_group": 8}
    del config["hub"], config["class"], config["parameters"], config["active_parameters"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = planned(str(tmp_path), CATALOG, {})

    assert found.parameters == 671_026_404_352
    assert dataclasses.replace(found.shape, beside=0) == planned("deepseek_v3", CATALOG, {}).shape
    with pytest.raises(FileError, match="no config of transformers"):
        planned(str(tmp_path / "other.json"), CATALOG, {})


def test_numbers_make_a_model():
    """Those that are missing are named."""
    numbers = {"layers": 24, "hidden": 1024, "heads": 16, "vocab": 50000}

    assert planned("mine", CATALOG, numbers).shape == dataclasses.replace(GPT, tied=False)
    with pytest.raises(UsageError, match="also needs vocab"):
        planned("mine", CATALOG, {name: number for name, number in numbers.items() if name != "vocab"})
    with pytest.raises(UsageError, match="experts_per_token, expert_ffn"):
        planned("mine", CATALOG, numbers | {"experts": 8})


def test_shards_of_a_node_are_reduced_between_nodes():
    """HSDP: fewer bytes are gathered between nodes, and the shards' gradients are reduced over the replicas."""
    asked = question("llama_8b", "h100_x8n4", stack="fsdp2")
    whole, hybrid = (asked.step(asked.setup(f"tp1 pp1 dp32 b1 zero3{words}")) for words in ("", " shard8"))

    assert hybrid.gathers < whole.gathers
    assert hybrid.data > whole.data == 0


def test_ranks_that_share_a_sequence_have_less_memory():
    """Twice as many of them hold half of the activations each, and take about half as long for a micro-batch."""
    asked = question("llama_8b", "h100_x8", 8, sequence=65536)
    alone, shared = (asked.setup(words) for words in ("tp2 pp1 dp4 b1 ckpt zero1", "tp2 pp1 dp2 cp2 b1 ckpt zero1"))

    assert activation_bytes(asked.shape, shared) == pytest.approx(activation_bytes(asked.shape, alone) / 2, rel=0.01)
    assert asked.step(shared).compute == pytest.approx(asked.step(alone).compute, rel=0.05)


def test_recomputing_less_takes_less_time_and_more_memory():
    """Half of the layers, or pointwise kernels alone, are between none and all."""
    asked = question("llama_8b", "h100_x8", 64)
    kinds = ("", " ckpt_pointwise", " ckpt50%", " ckpt")
    found = [asked.setup(f"tp1 pp1 dp8 b1{kind} zero1") for kind in kinds]
    seconds = [asked.step(one).total for one in found]
    bytes_ = [activation_bytes(asked.shape, one) for one in found]

    assert seconds == sorted(seconds)
    assert bytes_ == sorted(bytes_, reverse=True)


def test_experts_by_hand():
    """DeepSeek-V3: 671 billion parameters, of which a token passes 37 (arXiv 2412.19437), and one extra head."""
    shape = dataclasses.replace(planned("deepseek_v3", CATALOG, {}).shape, extra=0)
    active = sum(stack.layers * stack.active_parameters for stack in shape.stacks) + shape.hidden * shape.vocabulary

    assert shape.parameters == pytest.approx(671e9, rel=0.001)
    assert active == pytest.approx(37e9, rel=0.015)


def test_overloaded_experts_take_longer():
    """Balanced routing is an assumption, and its cost when it is not can be asked."""
    seconds = [
        asked.step(asked.setup("tp1 pp1 dp8 ep8 b4 zero1")).total
        for asked in (question("qwen3_30b_a3b", "gb200_x4n2", 512, options=one) for one in ({}, {"imbalance": "1.5"}))
    ]

    assert seconds[0] < seconds[1] < 1.5 * seconds[0]


def test_the_best_layout_fits_and_is_the_fastest():
    """The others follow by their time, each with the reason why it loses."""
    asked = question("gpt_7b5", "a100_80g_x8n4")
    found = search(asked)
    seconds = [one.predicted_step_seconds for one in found.best]

    assert seconds == sorted(seconds)
    assert all(one.predicted_bytes <= asked.capacity for one in found.best)
    assert found.best[0].loses_by == ""
    assert all(one.loses_by for one in found.best[1:])
    assert 0 < found.fitting < found.tried


def test_offload_is_for_what_does_not_fit_without():
    """Its time is a bound, which must not win by a few per cent."""
    roomy = search(question("llama_8b", "h100_x8n16", stack="deepspeed"), 2000).best
    tight = search(question("gpt_18b", "a100_40g_x8", stack="deepspeed")).best

    offloads = [one.offload for one in roomy]
    assert offloads == sorted(offloads) and set(offloads) == {False, True}
    assert tight[0].offload


def test_a_layout_is_taken_if_it_is_likely_to_fit():
    """By the deviation of what allocators reserve. A table says how likely, if that is not sure."""
    asked = question("llama_8b", "h100_x8")

    assert chance_to_fit(asked.capacity, asked.room) == pytest.approx(LIKELY)
    assert chance_to_fit(asked.room / 2, asked.room) > 0.999
    assert chance_to_fit(asked.room, asked.room) == pytest.approx(0.5)


def test_parts_add_up_and_the_interval_holds_the_prediction():
    """As a reader of the JSON expects it."""
    best = search(question("llama_8b", "h100_x8")).best[0]

    assert sum(best.predicted_parts.values()) == pytest.approx(best.predicted_step_seconds)
    assert best.low_seconds < best.predicted_step_seconds < best.high_seconds
    assert 0 < best.predicted_mfu <= best.predicted_hfu < 1


def test_a_slower_network_is_never_better():
    """With a tenth of the rate."""
    model, hardware = model_of("gpt_39b"), parse_hardware("a100_80g_x8n8", CATALOG)
    slow, fast = (
        plan(model, hardware, Wish(tokens=10**9, samples=512, node_network=rate)).layouts[0].predicted_step_seconds
        for rate in (20e9, 200e9)
    )

    assert slow > fast


def test_offload_needs_the_hosts_memory():
    """A host of 16 GiB holds no optimizer of 7.5 billion parameters."""
    model, hardware = model_of("gpt_7b5"), parse_hardware("a100_80g_x1", CATALOG)
    wish = Wish(tokens=10**9, stack="deepspeed")

    assert [one.offload for one in plan(model, hardware, wish).layouts][:1] == [True]
    assert plan(model, hardware, dataclasses.replace(wish, host_memory=2.0**34)).layouts == []


def test_a_batch_is_a_multiple_of_the_ranks():
    """4 Mi tokens, rounded up, unless it is given."""
    assert samples_of(None, 2048, 96) == 2112
    assert samples_of(1536, 2048, 96) == 1536


@pytest.mark.parametrize(("text", "wanted"), [("400Gbit/s", 50e9), ("50GB/s", 50e9), ("100Gbitps", 12.5e9)])
def test_a_networks_rate(text, wanted):
    """Bits or bytes."""
    assert parse_network(text) == wanted


@pytest.mark.parametrize("parse", [parse_network, parse_days])
@pytest.mark.parametrize("text", ["", "12", "0GB/s", "0d", "fast", "-1d"])
def test_a_wrong_rate_or_time_is_refused(parse, text):
    """The message says how to write one."""
    with pytest.raises(UsageError, match="write"):
        parse(text)


def test_a_cpu_has_no_plan():
    """The message says what to name instead."""
    with pytest.raises(Refused, match="name a device"):
        question("gpt_1b7", "cpu_x2")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--set", "step=adam", "step=adam+clip"], "--set has both step=adam and step=adam+clip: leave out one"),
        (["--set", "imbalance=1.5"], "--set imbalance is about experts, and gpt_1b7 has none"),
        (["--layout", "tp1 pp1 dp8 etp2 b1"], "etp2 divides experts, and the model has none"),
        (["--shape", "hidden=512"], "gpt_1b7 has its own numbers: give your model, which has --shape, another name"),
        (["--shape", "width=512"], "--shape has no 'width': write NAME=N, of layers, hidden"),
        (["--shape", "heads=0"], "--shape heads=0: it must be 1 or more"),
        (["--shape", "layers=1e12"], "--shape layers=1e12: it must be 1 or more, and at most 10,000"),
        (["--shape", "gated=2"], "--shape gated=2: it must be 0 or more, and at most 1"),
    ],
)
def test_what_would_have_no_effect_is_refused(capsys, words, said):
    """One sentence, instead of a plan that silently is not the one that was asked for."""
    assert main(["plan", "gpt_1b7", "--hardware=a100_80g_x8", "--tokens=1e9", *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["kv_heads=3"], "--shape heads=8 must be a multiple of kv_heads=3"),
        (["experts=4", "experts_per_token=8", "expert_ffn=64"], "--shape experts_per_token must be at most experts=4"),
    ],
)
def test_numbers_that_no_model_has_are_refused(capsys, words, said):
    """Each may be right by itself."""
    numbers = ["--shape", "layers=2", "hidden=64", "heads=8", "vocab=512", *words]

    assert main(["plan", "mine", "--hardware=a100_80g_x8", "--tokens=1e9", *numbers]) == 2
    assert said in capsys.readouterr().err


def test_the_command_prints_a_prediction(capsys, tmp_path):
    """It says that it is one, and writes what it prints."""
    file = tmp_path / "plan.json"
    status = main(
        ["plan", "gpt_1b7", "--hardware=a100_80g_x8", "--tokens=1e9", "--price=2", "--top=3", f"--json={file}"]
    )
    printed = capsys.readouterr().out
    found = codec.read(file, Plan)

    assert status == 0
    assert "gpt_1b7 on a100_80g_x8: predicted, not measured" in printed
    assert found.layouts[0].layout in printed
    assert len(found.layouts) == 3
    assert found.cost[1] == pytest.approx(2 * found.gpu_hours[1])
    assert found.days[0] < found.days[1] < found.days[2]


def test_nothing_fits(capsys):
    """Exit code 1, with what the smallest layout needs."""
    status = main(["plan", "gpt_1t", "--hardware=rtx3090_x1", "--tokens=1e9"])

    assert status == 1
    assert "No layout fits: the smallest needs" in capsys.readouterr().out


def test_another_software_may_fit(capsys):
    """175 billion parameters on four nodes need a division of parameters, or the hosts' memory."""
    assert main(["plan", "gpt3_175b", "--hardware=a100_80g_x8n4", "--tokens=1e9"]) == 1
    assert "With --stack deepspeed some do." in capsys.readouterr().out


def test_fewest_nodes(capsys):
    """The first size that fits is planned; the sizes are listed."""
    status = main(["plan", "gpt_39b", "--hardware=a100_80g_x8n4", "--tokens=1e9", "--seek=nodes", "--host-memory=1GiB"])
    printed = capsys.readouterr().out

    assert status == 0
    assert "gpt_39b on a100_80g_x8n2: predicted" in printed
    assert "a100_80g_x8 " in printed
    assert "none fits" in printed


def test_the_scaling_curve(capsys):
    """All halves are listed, and the whole is planned."""
    status = main(
        ["plan", "gpt_39b", "--hardware=a100_80g_x8n4", "--tokens=1e9", "--seek=scaling", "--host-memory=1GiB"]
    )
    printed = capsys.readouterr().out

    assert status == 0
    assert "gpt_39b on a100_80g_x8n4: predicted" in printed
    assert [line.split()[0] for line in printed.splitlines() if line.startswith("a100")] == [
        "a100_80g_x8",
        "a100_80g_x8n2",
        "a100_80g_x8n4",
    ]


def test_the_fewest_nodes_need_be_no_power_of_two(capsys):
    """Three nodes hold what two do not; and 112 are in time where 64 are late."""
    sought = ["--tokens=1e9", "--seek=nodes", "--top=1", "--stack=deepspeed"]
    main(["plan", "gpt3_175b", "--hardware=a100_80g_x8n4", *sought])
    assert capsys.readouterr().out.startswith("gpt3_175b on a100_80g_x8n3:")

    main(["plan", "gpt3_175b", "--hardware=a100_80g_x8n128", "--tokens=300e9", "--deadline=30d", "--top=1"])
    printed = capsys.readouterr().out
    found = int(re.findall(r"^gpt3_175b on a100_80g_x8n(\d+):", printed)[0])
    assert 64 < found < 128 and f"x8n{found} " in printed


def test_the_fewest_nodes_are_found_where_no_half_fits(capsys):
    """Of 530 billion parameters in 105 layers, no power of two divides the layers; 21 nodes are 21 stages."""
    sought = ["--hardware=a100_80g_x8n64", "--tokens=300e9", "--seek=nodes", "--top=1"]

    assert main(["plan", "gpt_530b", *sought]) == 0
    assert capsys.readouterr().out.startswith("gpt_530b on a100_80g_x8n21:")


def test_no_smaller_number_of_nodes_fits():
    """Whatever lies between the halves below the first one that fits."""
    model = model_of("gpt_530b")
    hardware = parse_hardware("a100_80g_x8n64", CATALOG)
    wish = Wish(tokens=300 * 10**9, count=1)

    assert not any(plan(model, dataclasses.replace(hardware, nodes=nodes), wish).layouts for nodes in range(1, 21))


def test_the_host_may_be_what_lacks_memory(capsys):
    """The devices have room, so the sentence names the host."""
    status = main(["plan", "gpt_530b", "--hardware=a100_80g_x8n7", "--tokens=1e9", "--stack=deepspeed"])

    assert status == 1
    assert (
        "No layout fits: with offload they need 1127.32 GiB of a host that has 1024.00 GiB" in capsys.readouterr().out
    )


def test_a_bridge_joins_two_cards():
    """Eight RTX 3090 send through the host, so tensor parallelism does not pay."""
    card = CATALOG.get("device", "rtx3090")

    assert machine_of(card, node=2).link_bandwidth == card.link_bandwidth
    assert machine_of(card, node=8).link_bandwidth == card.host_bandwidth * THROUGH_HOST
    assert search(question("gpt_1b7", "rtx3090_x8"), 1).best[0].tensor == 1


def test_a_plan_says_what_it_was_asked():
    """So that it can be made again from its JSON."""
    found = plan(model_of("llama_8b"), parse_hardware("h100_x8n2", CATALOG), Wish(tokens=10**9))

    assert (found.stack, found.stack_usual, found.precision) == ("megatron_core", True, "bf16")
    assert found.host_memory_bytes == 2**40
    assert found.node_network_bytes_per_second == 8 * 50e9


def test_a_deadline_that_no_size_meets(capsys):
    """Exit code 1; the largest is printed."""
    status = main(["plan", "gpt_39b", "--hardware=a100_80g_x8n4", "--tokens=300e9", "--deadline=1d"])

    assert status == 1
    assert "gpt_39b on a100_80g_x8n4" in capsys.readouterr().out


def test_the_largest_model(capsys):
    """One device holds less than eight."""
    arguments = ["--tokens=1e9", "--seek=model", "--host-memory=1GiB"]
    main(["plan", "gpt_1b7", "--hardware=a100_80g_x1", *arguments])
    one = re.findall(r"^(\w+) on", capsys.readouterr().out, re.MULTILINE)[0]
    main(["plan", "gpt_1b7", "--hardware=a100_80g_x8", *arguments])
    eight = re.findall(r"^(\w+) on", capsys.readouterr().out, re.MULTILINE)[0]

    assert CATALOG.get("model", one).parameters < CATALOG.get("model", eight).parameters


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--tokens=0", "--tokens must be a number above 0"),
        ("--batch=0", "--batch must be a number above 0"),
        ("--top=0", "--top must be 1 or more"),
        ("--deadline=soon", "write days or hours"),
        ("-s=0", "A length must be 1 or more"),
    ],
)
def test_an_invalid_option_is_refused(capsys, option, said):
    """One sentence, exit code 2."""
    assert main(["plan", "gpt_1b7", "--hardware=a100_80g_x8", "--tokens=1e9", option]) == 2
    assert said in capsys.readouterr().err


def test_a_catalog_imports_the_projects_own_package(tmp_path, monkeypatch, capsys):
    """From the project's root, although neither PYTHONPATH nor an installation says where it is."""
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "ownpackage").mkdir()
    (tmp_path / "ownpackage" / "__init__.py").write_text("LAYERS = 12\n")
    (tmp_path / "perf" / "models").mkdir(parents=True)
    (tmp_path / "perf" / "models" / "mine.py").write_text(
        "from ownpackage import LAYERS\n"
        "from perfsuite.catalog.definitions import Model, Workload\n"
        "MODELS = (Model(name='mine', family='mine', source='here', task='causal_lm', vocabulary=1000,\n"
        "    workload=Workload(micro_batch=1, sequence_length=128), config_class='GPT2Config',\n"
        "    model_class='GPT2LMHeadModel', config={'n_layer': LAYERS, 'n_embd': 512, 'n_head': 8,\n"
        "    'vocab_size': 1000}),)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])

    assert main(["plan", "mine", "--hardware=a100_80g_x8", "--tokens=1e9", "--catalog=perf"]) == 0
    assert "mine on a100_80g_x8: predicted, not measured" in capsys.readouterr().out


def test_a_layout_alone_is_predicted(capsys):
    """Whether it fits or not, which the exit code says."""
    asked = ["plan", "llama_70b", "--hardware=h100_x8", "--tokens=1e9", "--batch=64", "--layout=tp8 pp1 dp1 b1"]

    assert main(asked) == 1
    printed = capsys.readouterr().out
    assert "tp8 pp1 dp1 b1 does not fit: it needs" in printed
    assert "assumed: --stack megatron_core" in printed


def test_a_larger_model_says_why_it_does_not_fit(capsys):
    """Each of the family that is left out."""
    main(["plan", "llama_1b", "--hardware=h100_x8", "--tokens=1e9", "--seek=model"])

    assert "llama_70b does not fit: the smallest needs" in capsys.readouterr().out


def test_a_slice_of_tpus_is_planned_with_maxtext():
    """All of it is one domain of links, so 256 chips are no nodes. Software for GPUs is refused."""
    asked = question("llama_8b", "tpu_v6e_x256", samples=1024, sequence=8192)

    assert asked.software.name == "maxtext"
    assert asked.nodes_of(asked.setup("tp1 pp1 dp256 b4 ckpt_mlp zero3")) == 1
    with pytest.raises(UsageError, match="is for GPUs: tpu_v6e is planned with maxtext"):
        question("llama_8b", "tpu_v6e_x256", stack="megatron_core")


def test_a_layout_may_name_what_no_search_tries():
    """Megatron-FSDP has no published row, so it is asked for or not tried."""
    asked = question("llama_8b", "h100_x8", samples=64)

    assert asked.setup("tp1 pp1 dp8 b1 zero3").sharded == ALL
    assert not any("parameters" in one.sharded for one in layouts(asked))
