"""The step from a trace: streams and events in order, what is priced and refused, and the closed form beside it."""

import dataclasses
import json

import pytest

from perfsuite.cell import parse_cell
from perfsuite.cli import main
from perfsuite.errors import Refused
from perfsuite.predict.time.cells import setup_of
from perfsuite.predict.time.replayed import costs_of, replay_trace, trace_step
from perfsuite.predict.time.shape import shape_of
from perfsuite.predict.time.step import step
from perfsuite.predict.time.traced import cost, replay

GPT = "gpt_1b7-ddp+bf16+nodrop-a100_80g_x8"
LENGTH = ["--tokens", "1000000"]


@pytest.fixture(scope="module")
def costs(catalog):
    """Of an A100 in a node of eight."""
    return costs_of(parse_cell(GPT, catalog))


def kernel(seconds, costs, stream=0):
    """An operation of so many seconds."""
    return "kernel", 0, stream, [round(seconds * costs.rates.memory)]


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


def test_what_another_rank_decides_is_refused(costs):
    """A message to one rank ends when that rank has received it."""
    with pytest.raises(Refused, match="send"):
        cost("send", [1, 2, 1, 1], costs.rates, 1.0)


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("gpt2_tiny-single-cpu_x1", "perfsuite calibrate"),
        ("gpt2_tiny-single-a100_80g_x1", r"\+bf16"),
        ("gpt2_tiny-pp_1f1b+bf16+acc4-a100_80g_x2", "stages"),
    ],
)
def test_cells_that_a_replay_cannot_say_are_refused(catalog, cell, said):
    """With what to do instead, or why."""
    with pytest.raises(Refused, match=said):
        costs_of(parse_cell(cell, catalog))


def test_the_command_writes_what_the_code_issues(tmp_path, capsys):
    """A small DDP: its all-reduce has a row of its own, and the step is in the text."""
    path = tmp_path / "step.json"

    assert main(["time", "--cell", "gpt2_tiny-ddp+bf16-a100_80g_x2", "--predict", "--trace", str(path), *LENGTH]) == 0
    slices = [event for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"]
    sent = [event for event in slices if event["cat"] == "all_reduce"]
    assert sent and {event["tid"] for event in sent}.isdisjoint(event["tid"] for event in slices if event not in sent)
    assert "nothing was measured" in capsys.readouterr().out


def test_a_trace_file_needs_a_prediction(tmp_path, capsys):
    """Measured steps have no operations."""
    path = str(tmp_path / "a.json")

    assert main(["time", "--cell", "gpt2_tiny-ddp-cpu_x2", "--trace", path, *LENGTH]) != 0
    assert "add --predict" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt_1b7-single+bf16+nodrop-a100_80g_x1", GPT])
def test_trace_and_closed_form_agree(catalog, name):
    """Within 3 % of each other, with the same costs, where the closed form knows the code's kernels."""
    cell = parse_cell(name, catalog)
    costs = costs_of(cell)
    constants = dataclasses.replace(costs.constants, overlap=1.0, launch_layer=0.0)
    closed = step(shape_of(cell.model), setup_of(cell), costs.machine, constants)
    traced = replay_trace(trace_step(cell, catalog, padded=False), costs, launched=False)

    assert closed.total == pytest.approx(traced.total, rel=0.03)
    assert closed.compute + closed.optimizer == pytest.approx(traced.compute, rel=0.03)
