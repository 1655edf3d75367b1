"""The step from a trace: streams and events in order, what is priced and refused, and the closed form beside it."""

import dataclasses
import json
import re

import pytest

from perfsuite.catalog.cell import parse_cell
from perfsuite.cli.main import main
from perfsuite.errors import Refused
from perfsuite.features.predict.memory_table import headroom
from perfsuite.features.predict.time.cell_steps import setup_of
from perfsuite.features.predict.time.message_times import MessageGroup, point_to_point
from perfsuite.features.predict.time.regimes import interval
from perfsuite.features.predict.time.replayed import costs_of, replay_traces, trace_step
from perfsuite.features.predict.time.shape_config import shape_of
from perfsuite.features.predict.time.step import step
from perfsuite.features.predict.time.traced import cost, together
from perfsuite.features.predict.traced_memory import predict
from perfsuite.system.units import show_bytes

GPT = "gpt_1b7-ddp+bf16+nodrop-a100_80g_x8"
LENGTH = ["--tokens", "1000000"]


@pytest.fixture(scope="module")
def costs(catalog):
    """Of an A100 in a node of eight."""
    return costs_of(parse_cell(GPT, catalog))


def kernel(seconds, costs, stream=0):
    """An operation of so many seconds."""
    return "kernel", 0, stream, [round(seconds * costs.rates.memory)]


def replay(operations, rates, host, launch=0.0):
    """The operations of one rank in time."""
    return together({0: operations}, rates, host, launch)[0]


def pair(kind, other, stream=1000, event=2):
    """A send or recv of a GiB after the work of stream 0."""
    return [
        ("record", 0, 0, [event - 1]),
        ("wait", 0, stream, [event - 1]),
        (kind, 0, stream, [2**30, 2, other, event]),
    ]


def message(costs, event, stream=1000):
    """An all-reduce of a GiB over eight ranks, and its seconds."""
    numbers = [2**30, 8, 1, event]
    return ("all_reduce", 0, stream, numbers), cost("all_reduce", numbers, costs.rates, 1.0)


def test_a_message_hides_behind_kernels_until_its_event_is_waited_for(costs):
    """A second kernel of the same length hides all of it; one that waits hides nothing."""
    sent, seconds = message(costs, 2)
    begin = [kernel(1.0, costs), ("record", 0, 0, [1]), ("wait", 0, 1000, [1]), sent]
    hidden = replay([*begin, kernel(1.0, costs)], costs.rates, 1.0)
    waited = replay([*begin, ("wait", 0, 0, [2]), kernel(1.0, costs)], costs.rates, 1.0)

    assert (hidden.total, sum(hidden.exposed().values())) == pytest.approx((2.0, 0.0))
    assert (waited.total, waited.exposed()["all_reduce"]) == pytest.approx((2.0 + seconds, seconds))


def test_messages_of_one_group_queue(costs):
    """Two that nothing orders still end one after the other."""
    (one, seconds), (other, _) = message(costs, 1), message(costs, 2)

    assert replay([one, other], costs.rates, 1.0).total == pytest.approx(2 * seconds)


def test_an_event_is_only_of_the_work_before_it(costs):
    """Later work of the stream is not waited for."""
    found = replay(
        [kernel(1.0, costs, 1), ("record", 0, 1, [1]), kernel(5.0, costs, 1), ("wait", 0, 0, [1]), kernel(1.0, costs)],
        costs.rates,
        1.0,
    )

    assert found.placed[-1].begin == pytest.approx(1.0)


def test_the_host_issues_one_after_the_other_and_waits_when_it_asks(costs):
    """Kernels shorter than a launch wait for it; after a sync the host begins when the device has ended."""
    short = [kernel(1e-3, costs)] * 3
    launched = replay(short, costs.rates, 1.0, launch=1.0)
    synced = replay([kernel(5.0, costs), ("sync", 0, 0, []), *short], costs.rates, 1.0, launch=1.0)

    assert launched.total == pytest.approx(3.001)
    assert synced.placed[1].begin == pytest.approx(7.0)


def test_a_message_begins_when_both_ranks_are_there(costs):
    """The second rank computes for 1 s, waits for the first one's 3 s and for the message, and then ends last."""
    sent, received = pair("send", 1), pair("recv", 0)
    found = together(
        {0: [kernel(3.0, costs), *sent], 1: [kernel(1.0, costs), *received, ("wait", 0, 0, [2]), kernel(1.0, costs)]},
        costs.rates,
        1.0,
    )
    seconds = point_to_point(2**30, MessageGroup(2), costs.rates.links)

    assert found[0].placed[-1].begin == found[1].placed[1].begin == pytest.approx(3.0)
    assert found[1].total == pytest.approx(4.0 + seconds)
    assert found[1].running == pytest.approx(2.0 + seconds)


def test_messages_in_both_directions_do_not_block_each_other(costs):
    """Each rank sends before it receives, as NCCL's batches do."""
    there, back = pair("send", 1), pair("recv", 1, stream=1001, event=4)
    mirrored = pair("send", 0), pair("recv", 0, stream=1001, event=4)
    found = together({0: [*there, *back], 1: [*mirrored[0], *mirrored[1]]}, costs.rates, 1.0)

    assert found[0].total == found[1].total == pytest.approx(point_to_point(2**30, MessageGroup(2), costs.rates.links))


def test_a_collective_waits_for_all_ranks_that_are_replayed(costs):
    """Two of eight, of which the later one decides."""
    (sent, seconds) = message(costs, 1)
    begin = [("record", 0, 0, [9]), ("wait", 0, 1000, [9]), sent]
    found = together({0: begin, 4: [kernel(2.0, costs), *begin]}, costs.rates, 1.0)

    assert found[0].total == found[4].total == pytest.approx(2.0 + seconds)


def test_messages_that_never_meet_are_refused(costs):
    """A rank that is not replayed, and one that never sends."""
    waits = [*pair("recv", 1), ("wait", 0, 0, [2])]

    with pytest.raises(Refused, match="recv"):
        together({0: waits}, costs.rates, 1.0)
    for operations in (waits, waits[:-1]):  # nothing waits for the second
        with pytest.raises(Refused, match="wait for messages"):
            together({0: operations, 1: [kernel(1.0, costs)]}, costs.rates, 1.0)


def test_what_has_no_cost_is_refused(costs):
    """A collective that no ring passes."""
    with pytest.raises(Refused, match="all_to_all"):
        cost("all_to_all", [1, 2, 1, 1], costs.rates, 1.0)


@pytest.mark.slow
def test_a_pipeline_has_a_row_for_each_stage(tmp_path, capsys):
    """Its stages wait for each other, and the text says how long."""
    path = tmp_path / "step.json"
    cell = "gpt2_tiny-pp_1f1b+bf16+acc2-a100_80g_x2"

    assert main(["time", cell, "--predict", "--trace", str(path), *LENGTH]) == 0
    slices = [event for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"]
    sends = [{event["ts"] for event in slices if event["cat"] == kind} for kind in ("send", "recv")]
    assert {event["pid"] for event in slices} == {0, 1}
    assert sends[0] == sends[1] != set()
    assert "waiting for other stages" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("gpt2_tiny-single-cpu_x1", "which no replay has costs of"),
        ("gpt2_tiny-single-a100_80g_x1", r"\+bf16"),
        ("gpt2_tiny-pp_deepspeed+bf16+acc4-a100_80g_x2", "has no predicted step"),
        ("llama_1b-fsdp2+bf16-t4_x2", "none is known for bf16 on t4. It has fp16"),
        ("llama_1b-fsdp2+pure_bf16-t4_x2", "none is known for bf16 on t4. It has fp16"),
        ("wire-all_reduce-h100_x8", "messages have no model"),
    ],
)
def test_cells_that_a_replay_cannot_say_are_refused(catalog, cell, said):
    """With what to do instead, or why."""
    with pytest.raises(Refused, match=said):
        costs_of(parse_cell(cell, catalog))


def test_the_command_writes_what_the_code_issues(tmp_path, capsys):
    """A small DDP: its all-reduce has a row of its own, and the step is in the text."""
    path = tmp_path / "step.json"

    assert main(["time", "gpt2_tiny-ddp+bf16-a100_80g_x2", "--predict", "--trace", str(path), *LENGTH]) == 0
    slices = [event for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"]
    sent = [event for event in slices if event["cat"] == "all_reduce"]
    assert sent and {event["tid"] for event in sent}.isdisjoint(event["tid"] for event in slices if event not in sent)
    assert "nothing was measured" in capsys.readouterr().out


def test_the_time_has_the_interval_of_its_regime(catalog, capsys):
    """Of 90 %, in the unit of the time, with what is trained; a message that hides is told to slow kernels."""
    cell = "gpt2_small-ddp+bf16-a100_80g_x2-b8"
    main(["time", cell, "--predict", "--unpadded"])
    printed = capsys.readouterr().out
    step, low, high = map(float, re.search(r"1,000 steps of ([\d.]+) ms \(([\d.]+) ms–([\d.]+) ms\)", printed).groups())
    kind = re.findall(r"interval of 90 %: (.*)", printed)[0]

    assert (low, high) == pytest.approx(interval(step, kind), rel=0.01)
    assert re.search(r"predicted [\d.,]+ \([\d.,]+–[\d.,]+\) (min|s) for 1,000 steps", printed)
    assert "micro-batches of 8 × 1024 tokens, without padding; " in printed
    assert re.search(r"Messages slow kernels .*: about [\d.]+ ms in `fit`", printed)


def test_what_does_not_fit_is_told_beside_the_time(catalog, capsys):
    """With about as many missing bytes as `perfsuite memory` says, and exit code 1."""
    cell = "gpt2_small-ddp+bf16-rtx3090_x2-b64"
    (predicted,) = predict([parse_cell(cell, catalog)], catalog)
    status = main(["time", cell, "--predict", *LENGTH])
    printed = capsys.readouterr().out
    left = headroom(predicted)
    assert left is not None
    missing = show_bytes(-left)

    assert status == 1
    assert f"does not fit: ≈ {missing} missing, see perfsuite memory {cell}\n" in printed


def test_a_trace_file_needs_a_prediction(tmp_path, capsys):
    """Measured steps have no operations."""
    path = str(tmp_path / "a.json")

    assert main(["time", "gpt2_tiny-ddp-cpu_x2", "--trace", path, *LENGTH]) != 0
    assert "add --predict" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt_1b7-single+bf16+nodrop-a100_80g_x1", GPT])
def test_trace_and_closed_form_agree(catalog, name):
    """Within 3 % of each other, with the same costs, where the closed form knows the code's kernels."""
    cell = parse_cell(name, catalog)
    costs = costs_of(cell)
    constants = dataclasses.replace(costs.constants, overlap=1.0, launch_layer=0.0)
    closed = step(shape_of(cell.model), setup_of(cell, padded=False), costs.machine, constants)
    (traced,) = replay_traces(trace_step(cell, catalog, padded=False), costs, launched=False).values()

    assert closed.total == pytest.approx(traced.total, rel=0.03)
    assert closed.compute + closed.optimizer == pytest.approx(traced.compute, rel=0.03)
