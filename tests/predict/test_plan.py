"""The planner: what it tries, what fits, which layout it takes, and what the command prints."""

import dataclasses
import re

import pytest

from perfsuite.catalog.cell import parse_hardware
from perfsuite.catalog.definitions import Layout
from perfsuite.catalog.registry import Catalog
from perfsuite.cli.main import main
from perfsuite.errors import Refused, UsageError
from perfsuite.predict.plan.answer import Wish, plan
from perfsuite.predict.plan.layout_memory import (
    FUSED,
    KEPT,
    LIKELY,
    RESERVED,
    activation_bytes,
    chance_to_fit,
    host_bytes,
    layer_bytes,
    state_bytes,
)
from perfsuite.predict.plan.search import layouts, question_of, samples_of, search
from perfsuite.predict.time.constants import machine_of
from perfsuite.predict.time.setup import Setup
from perfsuite.predict.time.shape import decoder
from perfsuite.records import codec
from perfsuite.records.prediction import Plan
from perfsuite.units import parse_days, parse_network

CATALOG = Catalog(())
GPT = decoder(24, 1024, 16, 50000)
OPTIMIZER, ALL = frozenset({"optimizer"}), frozenset({"optimizer", "gradients", "parameters"})


def question(model, hardware, samples=512):
    return question_of(CATALOG.get("model", model), parse_hardware(hardware, CATALOG), samples, "megatron")


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


def test_what_is_offloaded_is_on_the_host():
    """16 bytes per parameter, divided by the replicas; nothing without offload."""
    setup = Setup(sequence=2048, layout=Layout(replicas=4), offload=True)

    assert host_bytes(GPT, setup) == pytest.approx(16 * GPT.parameters / 4)
    assert host_bytes(GPT, dataclasses.replace(setup, offload=False)) == 0


def test_software_keeps_what_it_gathers():
    """nanotron keeps whole inputs of tensor-parallel layers, and copies of hidden states; of logits a softmax more."""
    kept = KEPT["nanotron"]
    parallel = Setup(layout=Layout(tensor=8), sequence=2048, sequence_parallel=True)
    elements = 2048 * 1024

    more = layer_bytes(GPT.stacks[0], parallel, kept) - layer_bytes(GPT.stacks[0], parallel)
    assert more == pytest.approx(elements * (4 / 8 + 4))
    more = layer_bytes(GPT.stacks[0], Setup(sequence=2048), kept) - layer_bytes(GPT.stacks[0], Setup(sequence=2048))
    assert more == pytest.approx(elements * 4)
    more = activation_bytes(GPT, Setup(sequence=2048), kept) - activation_bytes(GPT, Setup(sequence=2048), FUSED)
    assert more == pytest.approx(24 * 4 * elements + 2 * 2048 * 50000)


def test_every_layout_uses_all_ranks_and_the_whole_batch():
    """And divides heads and layers."""
    found = list(layouts(question("gpt_7b5", "a100_80g_x8n4")))

    assert len(found) > 100
    assert {one.ranks for one in found} == {32}
    assert {one.samples for one in found} == {512}
    assert all(32 % one.layout.tensor == 0 and 36 % one.layout.pipeline == 0 for one in found)


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
    roomy = search(question("llama_8b", "h100_x8n16"), 2000).best
    tight = search(question("gpt_18b", "a100_40g_x8")).best

    offloads = [one.offload for one in roomy]
    assert offloads == sorted(offloads) and set(offloads) == {False, True}
    assert tight[0].offload


def test_a_layout_is_taken_if_it_is_likely_to_fit():
    """By the deviation of what allocators reserve. A table says how likely, if that is not sure."""
    asked = question("llama_8b", "h100_x8")

    assert chance_to_fit(asked.capacity, asked.room) == pytest.approx(LIKELY)
    assert chance_to_fit(asked.room / 2, asked.room) > 0.999
    assert chance_to_fit(asked.room / RESERVED, asked.room) == pytest.approx(0.5)


def test_parts_add_up_and_the_interval_holds_the_prediction():
    """As a reader of the JSON expects it."""
    best = search(question("llama_8b", "h100_x8")).best[0]

    assert sum(best.predicted_parts.values()) == pytest.approx(best.predicted_step_seconds)
    assert best.low_seconds < best.predicted_step_seconds < best.high_seconds
    assert 0 < best.predicted_mfu <= best.predicted_hfu < 1


def test_a_slower_network_is_never_better():
    """With a tenth of the rate."""
    model, hardware = CATALOG.get("model", "gpt_39b"), parse_hardware("a100_80g_x8n8", CATALOG)
    slow, fast = (
        plan(model, hardware, Wish(tokens=10**9, samples=512, node_network=rate)).layouts[0].predicted_step_seconds
        for rate in (20e9, 200e9)
    )

    assert slow > fast


def test_offload_needs_the_hosts_memory():
    """A host of 16 GiB holds no optimizer of 7.5 billion parameters."""
    model, hardware = CATALOG.get("model", "gpt_7b5"), parse_hardware("a100_80g_x1", CATALOG)

    assert [one.offload for one in plan(model, hardware, Wish(tokens=10**9)).layouts][:1] == [True]
    assert plan(model, hardware, Wish(tokens=10**9, host_memory=2.0**34)).layouts == []


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


def test_fewest_nodes(capsys):
    """The first size that fits is planned; the sizes are listed."""
    status = main(["plan", "gpt_39b", "--hardware=a100_80g_x8n4", "--tokens=1e9", "--min-nodes", "--host-memory=1GiB"])
    printed = capsys.readouterr().out

    assert status == 0
    assert "gpt_39b on a100_80g_x8n2: predicted" in printed
    assert "a100_80g_x8 " in printed
    assert "none fits" in printed


def test_the_scaling_curve(capsys):
    """All halves are listed, and the whole is planned."""
    status = main(["plan", "gpt_39b", "--hardware=a100_80g_x8n4", "--tokens=1e9", "--scaling", "--host-memory=1GiB"])
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
    main(["plan", "gpt3_175b", "--hardware=a100_80g_x8n4", "--tokens=1e9", "--min-nodes", "--top=1"])
    assert capsys.readouterr().out.startswith("gpt3_175b on a100_80g_x8n3:")

    main(["plan", "gpt3_175b", "--hardware=a100_80g_x8n128", "--tokens=300e9", "--deadline=30d", "--top=1"])
    printed = capsys.readouterr().out
    found = int(re.findall(r"^gpt3_175b on a100_80g_x8n(\d+):", printed)[0])
    assert 64 < found < 128 and f"x8n{found} " in printed


def test_the_host_may_be_what_lacks_memory(capsys):
    """The devices have room, so the sentence names the host."""
    status = main(["plan", "gpt_530b", "--hardware=a100_80g_x8n7", "--tokens=1e9"])

    assert status == 1
    assert (
        "No layout fits: with offload they need 1127.32 GiB of a host that has 1024.00 GiB" in capsys.readouterr().out
    )


def test_a_bridge_joins_two_cards():
    """Eight RTX 3090 send through the host, so tensor parallelism does not pay."""
    card = CATALOG.get("device", "rtx3090")

    assert machine_of(card, node=2).link_bandwidth == card.link_bandwidth
    assert machine_of(card, node=8).link_bandwidth == card.host_bandwidth
    assert search(question("gpt_1b7", "rtx3090_x8"), 1).best[0].tensor == 1


def test_a_plan_says_what_it_was_asked():
    """So that it can be made again from its JSON."""
    found = plan(CATALOG.get("model", "llama_8b"), parse_hardware("h100_x8n2", CATALOG), Wish(tokens=10**9))

    assert (found.stack, found.precision, found.host_memory_bytes) == ("megatron", "bf16", 2**40)
    assert found.node_network_bytes_per_second == 8 * 50e9


def test_a_deadline_that_no_size_meets(capsys):
    """Exit code 1; the largest is printed."""
    status = main(["plan", "gpt_39b", "--hardware=a100_80g_x8n4", "--tokens=300e9", "--deadline=1d"])

    assert status == 1
    assert "gpt_39b on a100_80g_x8n4" in capsys.readouterr().out


def test_the_largest_model(capsys):
    """One device holds less than eight."""
    arguments = ["--tokens=1e9", "--max-model", "--host-memory=1GiB"]
    main(["plan", "gpt_1b7", "--hardware=a100_80g_x1", *arguments])
    one = capsys.readouterr().out.split()[0]
    main(["plan", "gpt_1b7", "--hardware=a100_80g_x8", *arguments])
    eight = capsys.readouterr().out.split()[0]

    assert CATALOG.get("model", one).parameters < CATALOG.get("model", eight).parameters


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--tokens=-1", "--tokens must be a number above 0"),
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
