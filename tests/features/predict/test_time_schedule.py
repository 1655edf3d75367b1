"""The schedule of a predicted step: its spans add up to the step, and Perfetto's format has all of them."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsuite.catalog.definitions import Layout
from perfsuite.catalog.registry import Catalog
from perfsuite.cli.main import main
from perfsuite.features.predict.time.constants import constants_of, machine_of
from perfsuite.features.predict.time.schedule import BACKWARD, FORWARD, spans
from perfsuite.features.predict.time.setup import Setup
from perfsuite.features.predict.time.shape import decoder, gpt_layers
from perfsuite.features.predict.time.step import step

A100 = Catalog(()).get("device", "a100_80g")
MACHINE, CONSTANTS = machine_of(A100), constants_of(A100, "megatron")
GPT = decoder(gpt_layers(24, 2304, 24), 51200, positions=2048)


@st.composite
def setups(draw) -> Setup:
    """Pipelines of 1 to 8 stages, with enough micro-batches to fill them, and with chunks if those divide evenly."""
    stages = draw(st.sampled_from([1, 2, 4, 8]))
    chunks = draw(st.sampled_from([1, 3])) if stages > 1 else 1
    return Setup(
        layout=Layout(pipeline=stages, replicas=draw(st.sampled_from([1, 4]))),
        sequence=2048,
        micro_batch=draw(st.sampled_from([1, 4])),
        accumulation=stages * draw(st.integers(1, 6)),
        interleave=chunks,
        overlapped=draw(st.booleans()),
        recompute=draw(st.sampled_from(["none", "full"])),
    )


@given(setups())
def test_the_schedule_ends_with_the_predicted_step(setup):
    """The simulated stages are done when the closed form says so."""
    found = spans(GPT, setup, MACHINE, CONSTANTS)
    end = max(one.begin + one.seconds for one in found)

    assert end == pytest.approx(step(GPT, setup, MACHINE, CONSTANTS).total, rel=1e-9)


@given(setups())
def test_durations_add_up_to_the_parts(setup):
    """Of the slowest stage, the last one: its spans are the parts of the step, and the rest is the bubble."""
    total = step(GPT, setup, MACHINE, CONSTANTS)
    own = [one for one in spans(GPT, setup, MACHINE, CONSTANTS) if one.stage == setup.layout.pipeline - 1]
    for name, seconds in total.parts().items():
        if name != "bubble":
            assert sum(one.parts.get(name, 0.0) for one in own) == pytest.approx(seconds, abs=1e-12)

    assert total.total - sum(one.seconds for one in own) == pytest.approx(total.bubble, abs=1e-9)


@given(setups())
def test_a_stage_does_one_thing_at_a_time(setup):
    """And every micro-batch goes forward and back through every chunk once, forward first."""
    found = spans(GPT, setup, MACHINE, CONSTANTS)
    for _, group in itertools.groupby(found, key=lambda one: one.stage):
        own = sorted(group, key=lambda one: one.begin)
        assert all(one.begin + one.seconds <= next_.begin + 1e-9 for one, next_ in itertools.pairwise(own))
    begins = {(one.name, one.stage, one.chunk, one.micro_batch): one.begin for one in found if one.micro_batch >= 0}

    assert len(begins) == 2 * setup.layout.pipeline * setup.interleave * setup.accumulation
    assert all(begins[BACKWARD, *one[1:]] > begin for one, begin in begins.items() if one[0] == FORWARD)


def test_plan_writes_it_for_perfetto(tmp_path, capsys):
    """Complete events in microseconds, with a name per stage; the last one ends with the step of the JSON."""
    path, answer = tmp_path / "step.json", tmp_path / "plan.json"
    command = ["plan", "gpt_18b", "--hardware", "a100_80g_x8n4", "--tokens", "1e9", "--batch", "64"]
    status = main([*command, "--trace", str(path), "--json", str(answer)])
    events = json.loads(path.read_text())["traceEvents"]
    best = json.loads(answer.read_text())["layouts"][0]
    works = [one for one in events if one["ph"] == "X"]

    assert status == 0
    assert f"{path} is written" in capsys.readouterr().out
    assert max(one["ts"] + one["dur"] for one in works) == pytest.approx(best["predicted_step_seconds"] * 1e6)
    assert {one["tid"] for one in works} == set(range(best["pipeline"]))
    assert "predicted, not measured" in events[0]["args"]["name"]
