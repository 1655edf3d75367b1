"""Work that can be counted: Python calls, allocations and, on CUDA, launches and synchronizations; and what a step is
timed with.
"""

import sys
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from gate_samples import VERSIONS, baseline, measurement, with_measurement
from sampling import slow_unless

from perfsuite.catalog.cell import parse_cell
from perfsuite.compare.explain import explain
from perfsuite.compare.judge import judge
from perfsuite.meters import _matmul_peak
from perfsuite.meters._cuda_runtime import (
    END,
    LAUNCHES,
    MODULE,
    NODE,
    PHASE,
    SYNCHRONISATIONS,
    HostEvent,
    reading,
    runtime_calls,
)
from perfsuite.meters.allocations import count_allocations
from perfsuite.meters.flops import hfu, mfu
from perfsuite.meters.python_calls import METRICS as CALLS
from perfsuite.rank.memory.anatomy import Mark
from perfsuite.records.baseline import Baseline
from perfsuite.records.formats import FORMAT
from perfsuite.records.sample import Reading
from perfsuite.records.step_kinds import StepKind, block_size, last_kinds
from perfsuite.records.verdict import RED
from perfsuite.run.runner import Runner, Settings
from perfsuite.show.text.line_words import moves_text, note_text
from perfsuite.show.text.verdict_text import render

GPT2 = "gpt2_tiny-single-cpu_x1"
MODELING = "transformers.models.gpt2.modeling_gpt2"


def held_to(new, old, catalog):
    """The verdict on a measurement whose baseline is another."""
    base = Baseline(format=FORMAT, cell=old.cell, date="", commit="", measurement=old)
    strategy = old.cell.split("-")[1]
    return judge(new, base, catalog.metrics("training"), strategy=strategy)


def test_one_more_python_call_per_layer_is_shown_and_named(measure, catalog):
    """No time and no tensor shows it: the count does, with the package, the function and its module. Two of 659 calls
    are less than matters.
    """
    verdict = held_to(measure(GPT2, "calls_once_more"), measure(GPT2), catalog)
    lines = [line for line in verdict.lines if line.status in RED | {"immaterial"}]

    assert [(line.metric, line.status) for line in lines] == [("python_calls", "immaterial")], render(verdict, None)
    assert note_text(lines[0]) == f"transformers +2: _checked in {MODELING}"


def test_python_calls_are_those_of_the_libraries(measure):
    """Each part is a package; neither perfsuite nor the standard library is one."""
    calls = measure(GPT2).readings["python_calls"]

    assert calls.parts.keys() == {"torch", "transformers"}
    assert calls.suspects[f"transformers: GPT2MLP.forward @ {MODELING}"] == 2
    assert sum(calls.suspects.values()) == calls.value


def test_python_calls_inside_a_greenlet_count(measure):
    """transformers' Trainer runs in a greenlet, which has a profile function of its own."""
    calls = measure("gpt2_tiny-single+hf_trainer-cpu_x1").readings["python_calls"]

    assert calls.suspects["transformers: Trainer.training_step @ transformers.trainer"] == 1
    assert calls.suspects[f"transformers: GPT2MLP.forward @ {MODELING}"] == 2
    assert calls.parts["accelerate"] > 0


@pytest.mark.slow
def test_counts_do_not_depend_on_hashes(catalog, monkeypatch):
    """DTensor's caches compare keys as their hashes fall, which differ from launch to launch."""
    counted = []
    for seed in ("1", "2"):
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        runner = Runner(catalog, Settings(steps=1, warmup=0))
        readings = runner.measure(parse_cell("llama_tiny-fsdp2-cpu_x2", catalog)).readings
        runner.close()
        counted.append({name: readings[name] for name in ("python_calls", "allocations", "operators")})

    assert counted[0] == counted[1]


@pytest.mark.parametrize(("python", "status"), [("3.12.2", "not compared"), ("3.11.9", "regressed")])
def test_python_calls_are_held_under_one_minor_version_of_python(python, status):
    """3.12 inlines comprehensions, so its count is another one; a patch release compiles alike."""
    old = baseline(python_calls=Reading(value=100, parts={"torch": 100}))
    new = measurement(python_calls=Reading(value=101, parts={"torch": 101}))
    new_python = with_measurement(baseline(), versions=VERSIONS | {"python": python}).measurement.versions
    verdict = judge(
        with_measurement(old, readings=new.readings, versions=new_python).measurement,
        old,
        CALLS,
        strategy="zero3",
    )
    line = next(line for line in verdict.lines if line.metric == "python_calls")

    assert line.status == status
    assert ("python 3.11 -> 3.12" in note_text(line)) == (status == "not compared")


def test_every_package_that_moved_is_named():
    """What a function calls in turn moves more than it does: the cause must not be hidden by its effect."""
    before = {"torch: is_tensor @ torch": 8, "transformers: run @ transformers.utils": 2}
    after = {"torch: is_tensor @ torch": 14, "transformers: check @ transformers.utils": 2}
    old = Reading(value=10, parts={"torch": 8, "transformers": 2}, suspects=before)
    new = Reading(value=18, parts={"torch": 14, "transformers": 4}, suspects=before | after)
    said = moves_text(explain(CALLS[0], new, old), CALLS[0].unit)

    assert said == "torch +6: is_tensor in torch; transformers +2: check in transformers.utils"


def test_allocations_are_those_of_the_last_whole_step():
    """Neither the making of a batch nor what other threads allocate, whose operator is not known, counts."""
    marks = {number: Mark(phase) for number, phase in enumerate(("batch", "forward", "end", "batch", "forward", "end"))}
    marks[6] = Mark("batch")
    step = [(64, 8, "aten::mm @ h.0"), (64, -8, ""), (128, 8, "aten::mm @ h.1"), (192, 8, "")]
    events = [(-1, 0, ""), (1, 8, "aten::to @ (batch)"), (-1, 1, ""), *step, *step, (-1, 2, "")]
    events += [(-1, 3, ""), (2, 8, "aten::to @ (batch)"), (-1, 4, ""), *step, (-1, 5, ""), (3, 8, "aten::add @ (end)")]
    counted = count_allocations([*events, (-1, 6, ""), (4, 8, "aten::to @ (batch)")], marks)

    assert counted.parts == {"forward": 2, "optimizer": 1}
    assert counted.suspects == {"forward: aten::mm @ h.0-1": 2, "optimizer: aten::add @ (end)": 1}


def test_allocations_of_a_history_without_operators_count():
    """CUDA's names none."""
    marks = {0: Mark("batch"), 1: Mark("backward")}

    assert count_allocations([(-1, 0, ""), (-1, 1, ""), (1, 8, ""), (2, 8, "")], marks).parts == {"backward": 2}


def test_runtime_calls_are_told_by_operator_and_module():
    """A forward's by the module that runs, a backward's by the one whose forward made the node; none after the step."""
    backward = (("aten::mm", -1), ("MmBackward0", 7), (f"{NODE}MmBackward0", 7))
    events = [
        HostEvent("cudaLaunchKernel"),
        HostEvent(f"{PHASE}forward"),
        HostEvent(f"{MODULE}h.0.mlp"),
        HostEvent("aten::linear", 7),
        HostEvent("cudaLaunchKernel", parents=(("aten::mm", 7), ("aten::linear", 7))),
        HostEvent("cudaStreamSynchronize", parents=(("aten::_local_scalar_dense", 8), ("aten::item", 8))),
        HostEvent(MODULE),
        HostEvent("aten::sum", 8),
        HostEvent(f"{PHASE}backward"),
        HostEvent(f"{NODE}MmBackward0", 7),
        HostEvent("MmBackward0", 7, backward[2:]),
        HostEvent("cuLaunchKernelEx", parents=backward),
        HostEvent(f"{NODE}torch::autograd::AccumulateGrad", -1),
        HostEvent("cudaLaunchKernel", parents=(("aten::add_", -1), (f"{NODE}torch::autograd::AccumulateGrad", -1))),
        HostEvent(f"{PHASE}optimizer"),
        HostEvent("cudaLaunchKernel", parents=(("aten::_foreach_mul_", -1), ("Optimizer.step#AdamW.step", -1))),
        HostEvent("cudaMemcpyAsync"),
        HostEvent(END),
        HostEvent("cudaDeviceSynchronize"),
    ]
    calls = runtime_calls(events)
    launches = reading(calls, LAUNCHES)

    assert launches.parts == {"batch": 1, "forward": 1, "backward": 2, "optimizer": 1}
    assert launches.suspects == {
        "batch: cudaLaunchKernel @ (batch)": 1,
        "forward: aten::linear @ h.0.mlp": 1,
        "backward: MmBackward0 @ h.0.mlp": 1,
        "backward: aten::add_ @ h.0.mlp": 1,
        "optimizer: aten::_foreach_mul_ @ (optimizer)": 1,
    }
    assert reading(calls, SYNCHRONISATIONS).suspects == {"forward: aten::item @ h.0.mlp": 1}


def readings_at(peak):
    """A rank that computes 100 FLOP/s, and with recomputation 120."""
    values = {"model_flop": 100, "hardware_flop": 120, "step_time_seconds": 1, "peak_flops": peak}
    return {name: Reading(value=value) for name, value in values.items()}


def test_a_peak_below_what_is_reached_gives_no_utilization():
    """Neither of the two, although one of them would still be possible."""
    assert (mfu(readings_at(200), 1), hfu(readings_at(200), 1)) == (0.5, 0.6)
    assert (mfu(readings_at(110), 1), hfu(readings_at(110), 1)) == (None, None)


def test_a_dtype_without_instructions_is_not_measured_twice(monkeypatch):
    """bf16 takes a second per matmul here. Its first run shows that fp32 is the peak."""
    run, now = [], [0.0]

    def mm(left, right):
        run.append(left.dtype)
        now[0] += 1.0 if left.dtype == "bf16" else 0.004

    class Tensor:
        dtype = "fp32"

        def to(self, dtype):
            made = Tensor()
            made.dtype = dtype
            return made

        def t(self):
            return self

    fake = SimpleNamespace(randn=lambda *_: Tensor(), mm=mm, float32="fp32")
    monkeypatch.setitem(sys.modules, "torch", fake)
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    session: Any = SimpleNamespace(compute_dtype="bf16")
    peak = _matmul_peak.measure_matmul(session)

    assert peak == pytest.approx(2 * max(_matmul_peak.MATMUL_SIZES) ** 3 / 0.004)
    assert run.count("bf16") == 3 * len(_matmul_peak.MATMUL_SIZES)


def test_a_utilization_that_only_the_baseline_has_is_not_red(measure, catalog):
    """The peak of a CPU is measured, and may be none here."""
    here = measure(GPT2)
    without = {name: reading for name, reading in here.readings.items() if name not in ("mfu", "hfu")}
    old = Baseline(format=FORMAT, cell=here.cell, date="", commit="", measurement=here)

    assert held_to(with_measurement(old, readings=without).measurement, here, catalog).status == "ok"


def test_blocks_are_as_many_steps_as_are_timed_or_ten():
    """Five samples where there are enough steps."""
    blocks = [
        last_kinds(steps, "training", "cpu", capped=False).count(StepKind.UNFENCED) for steps in (1, 3, 10, 50, 200)
    ]

    assert blocks == [1, 3, 5, 10, 10]
    assert [block_size(steps) for steps in (1, 3, 10, 50, 200)] == [1, 1, 2, 5, 5]


def test_nothing_fences_the_steps_of_a_block(catalog, pytestconfig):
    """A timed step ends with a synchronization, as does a block of unfenced ones, but none of those within it."""
    settings = Settings(steps=10, warmup=0, import_path=(str(pytestconfig.rootpath / "tests" / "support"),))
    runner = Runner(catalog, settings)
    told = runner.measure(
        replace(parse_cell("gpt2_tiny-ddp-cpu_x2", catalog), faults=("faults:tells_order",))
    ).failure.message
    runner.close()

    assert told.count("fence timed step fence") == 10
    assert told.count("fence unfenced step step fence") == 5
    assert told.count("step") == 3 + 10 + 5 * 2 + 1


@pytest.mark.parametrize(
    "cell",
    slow_unless(
        {"t5_tiny-single+fp16-cpu_x1"}.__contains__, [GPT2, "t5_tiny-single+fp16-cpu_x1", "gpt2_tiny-fsdp1-cpu_x2"]
    ),
)
def test_timed_steps_do_what_the_library_does(measure, cell):
    """No gradient norm of ours and no read of the loss scale; the norm is that of the steps before them."""
    measurement = measure(cell, "own_norm_forbidden")

    assert measurement.outcome == "fits", measurement.failure
    assert len(measurement.readings["gradient_norm"].samples) == 3 + 1  # recorded, warm-up


@pytest.mark.slow
def test_what_other_cells_imported_changes_no_count(catalog):
    """DeepSpeed, whose import makes torch wrap functions for its compiler, ran before in the same rank server."""
    cells = [parse_cell(text, catalog) for text in ("gpt2_tiny-ddp-cpu_x2", "gpt2_tiny-zero1-cpu_x2")]
    counts = []
    for order in (cells[:1], cells[::-1]):
        runner = Runner(catalog, Settings(steps=1, warmup=1))
        last = [runner.measure(cell) for cell in order][-1]
        runner.close()
        counts.append(last.readings["python_calls"].suspects)

    assert counts[0] == counts[1]
