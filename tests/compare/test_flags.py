"""What changes speed and is in no version: which of it a measurement keeps, and that a verdict names what changed."""

import dataclasses
from contextlib import closing

import msgspec
import pytest
from gate_samples import CELL, MACHINE, METRICS, OOM, baseline, measurement, rank_sample, with_measurement

from perfsuite.catalog.cell import parse_cell
from perfsuite.catalog.tuning import INDUCTOR, Rank
from perfsuite.compare.compare import compare
from perfsuite.compare.gather import LaunchFacts, failed, gather
from perfsuite.compare.judge import what_changed
from perfsuite.compare.scope import changes
from perfsuite.compare.terms import DEDICATED
from perfsuite.rank.flags import OWN, variables
from perfsuite.run.runner import Runner
from perfsuite.show.text.trial_words import text_of_change

RING = {"GLOO_DEVICE_TRANSPORT": "tcp", "torch threads": "1"}
NONE = {"torch threads": "2"}


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("NCCL_ALGO", "Ring", "Ring"),
        ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True", "expandable_segments:True"),
        ("CUDA_LAUNCH_BLOCKING", "1", "1"),
        ("TORCHINDUCTOR_MAX_AUTOTUNE", "1", "1"),
        ("MKL_NUM_THREADS", "2", "2"),
        ("NVIDIA_TF32_OVERRIDE", "0", "0"),
        ("TORCH_LOGS", "+dynamo", None),
        ("CUDA_VISIBLE_DEVICES", "1", None),
        ("CUDA_HOME", "/usr/local/cuda", None),
        ("NCCL_VERSION", "2.27", None),
        ("TORCHINDUCTOR_CACHE_DIR", "/tmp/torchinductor", None),
        ("OMP_NUM_THREADS", "1", None),
        ("HF_TOKEN", "secret", None),
        ("HOME", "/root", None),
    ],
)
def test_variables(name: str, value: str, kept: str | None) -> None:
    """Those that tune something are kept, not where something lies, nor what perfsuite itself always sets."""
    rank = Rank("cuda", 2, 1, frozenset({INDUCTOR}))

    assert variables({name: value, OWN: "OMP_NUM_THREADS DS_ACCELERATOR"}, rank).get(name) == kept


def test_flags_of_a_real_cell(measure) -> None:
    """They are asked for when the steps have run, in each rank: what own code has set by then is among them."""
    cell = "gpt2_tiny-ddp-cpu_x2"
    usual, broken = measure(cell).flags, measure(cell, "sets_flags")
    here = broken.flags

    assert broken.outcome == "fits"
    assert (usual["torch threads"], usual["anomaly mode"], usual["float32 matmul precision"]) == ("1", "off", "highest")
    assert not {"OMP_NUM_THREADS", "DS_ACCELERATOR", "TORCHINDUCTOR_COMPILE_THREADS"} & usual.keys()
    assert sorted(text_of_change(one) for one in changes(usual, here)) == [
        "anomaly mode off -> on",
        "float32 matmul precision highest -> high",
        "garbage collection on -> off",
        "torch threads 1 -> 1 on rank 0, 2 on rank 1",
    ]


@pytest.mark.parametrize("fault", ["fails_in_a_recorded_step", "fails_in_a_timed_step"])
def test_a_meter_s_own_switches_are_no_flags(measure, fault: str) -> None:
    """However the cell ends: a meter collects no garbage in recorded steps, which is no change of the user's."""
    cell = "gpt2_tiny-ddp-cpu_x2"
    usual, failed_one = measure(cell), measure(cell, fault)

    assert failed_one.outcome == "failed"
    assert [text_of_change(one) for one in changes(usual.flags, failed_one.flags)] == []


def test_a_capped_cell_has_the_usual_flags(runner: Runner, measure) -> None:
    """All of its steps run without collections of garbage, which a meter switches off."""
    cell = "gpt2_tiny-ddp-cpu_x2"
    usual = measure(cell)
    roomy = dataclasses.replace(runner.settings, capacity_bytes=usual.readings["peak_memory_bytes"].value * 4)
    with closing(Runner(runner.catalog, roomy)) as capped:
        found = capped.measure(parse_cell(cell, runner.catalog))

    assert found.outcome == "fits"
    assert [text_of_change(one) for one in changes(usual.flags, found.flags)] == []


def test_ranks_fold() -> None:
    """Where all agree the text is theirs, else it says who has what."""
    samples = [msgspec.structs.replace(rank_sample(rank), flags=flags) for rank, flags in enumerate((RING, NONE))]
    told = gather(LaunchFacts(cell=CELL, machine=MACHINE, wall_seconds=1.0), samples, METRICS).flags

    assert told == {
        "GLOO_DEVICE_TRANSPORT": "tcp on rank 0, none on rank 1",
        "torch threads": "1 on rank 0, 2 on rank 1",
    }


def test_a_cell_that_failed_keeps_its_flags() -> None:
    """An allocator's setting may be why memory ran out."""
    failure = msgspec.structs.replace(OOM, flags=RING)
    told = failed(LaunchFacts(cell=CELL, machine=MACHINE, wall_seconds=1.0), failure)

    assert told.flags == RING


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        (RING, NONE, ["GLOO_DEVICE_TRANSPORT tcp -> none", "torch threads 1 -> 2"]),
        (RING, RING, []),
        ({}, RING, []),  # a baseline from before there were flags
        (RING, {}, []),  # a cell that did not come so far
    ],
)
def test_flags_are_suspects(old: dict[str, str], new: dict[str, str], changed: list[str]) -> None:
    """A verdict and an A/B name those that changed, where both sides know theirs."""
    before, after = (msgspec.structs.replace(measurement(), flags=flags) for flags in (old, new))
    judged = [text_of_change(one) for one in what_changed(after, with_measurement(baseline(), flags=old).measurement)]
    compared = compare([before], [after], METRICS, strategies=("zero3", "zero3"), terms=DEDICATED)

    assert judged == [text_of_change(one) for one in compared.verdict.changed] == changed
