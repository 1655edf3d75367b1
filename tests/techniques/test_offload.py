"""Offload: the same numbers from the host's memory and from a disk, with proof that they come from there."""

from pathlib import Path

import pytest
from parity import worst
from sampling import slow_unless

from conftest import SETTINGS
from perfsuite.catalog.cell import parse_cell
from perfsuite.errors import Refused
from perfsuite.run.runner import Runner

BOUND = 1e-4
ON_HOST = [
    "zero1+offload_optimizer+nodrop-cpu_x2",
    "zero2+offload_optimizer+nodrop-cpu_x1-b4",
    "zero2+offload_optimizer+nodrop-cpu_x2",
    "zero3+offload_optimizer+nodrop-cpu_x2",
    "zero3+offload_params+nodrop-cpu_x2",
    "zero3+offload+nodrop-cpu_x1-b4",
    "zero3+offload+nodrop-cpu_x2",
    "zero3+offload+ckpt+nodrop-cpu_x2",
]
QUICK = ("zero3+offload+nodrop-cpu_x2",)
needs_libaio = pytest.mark.skipif(not Path("/usr/include/libaio.h").exists(), reason="libaio-dev is not installed")


@pytest.mark.parametrize("cell", slow_unless(QUICK.__contains__, ON_HOST))
def test_offload_agrees_with_single(measure, cell):
    """Where tensors are kept changes no number."""
    single, offloaded = measure("gpt2_tiny-single+nodrop-cpu_x1-b4"), measure(f"gpt2_tiny-{cell}")

    assert worst(single, offloaded, "loss") < BOUND
    assert worst(single, offloaded, "gradient_norm") < BOUND


@pytest.mark.slow
@pytest.mark.parametrize("strategy", slow_unless("zero3+offload".__eq__, ["zero2+offload_optimizer", "zero3+offload"]))
def test_offload_clips(measure, strategy):
    """Gradients on the host are clipped by the norm of the whole gradient."""
    single = measure("gpt2_tiny-single+clip+nodrop-cpu_x1-b4")
    offloaded = measure(f"gpt2_tiny-{strategy}+clip+nodrop-cpu_x2")

    assert worst(single, offloaded, "loss") < BOUND
    assert worst(single, offloaded, "gradient_norm") < BOUND


@pytest.mark.slow
@pytest.mark.parametrize("engine", slow_unless("zero2".__eq__, ["zero1", "zero2", "zero3"]))
def test_offload_accumulates(measure, engine):
    """Gradients that are gathered on the host over two micro-batches are those of a larger one."""
    single = measure("gpt2_tiny-single+nodrop-cpu_x1-b8")
    offloaded = measure(f"gpt2_tiny-{engine}+offload_optimizer+acc2+nodrop-cpu_x2")

    assert worst(single, offloaded, "loss") < BOUND
    assert worst(single, offloaded, "gradient_norm") < BOUND


@pytest.mark.slow
@pytest.mark.parametrize(
    "strategy",
    slow_unless(
        "zero2+offload_optimizer".__eq__, ["zero1+offload_optimizer", "zero2+offload_optimizer", "zero3+offload"]
    ),
)
def test_offload_runs_in_bf16(measure, strategy):
    """bf16 with its master parameters on the host takes the steps of bf16 without offload."""
    plain = measure(f"gpt2_tiny-{strategy.split('+')[0]}+bf16+nodrop-cpu_x2")
    offloaded = measure(f"gpt2_tiny-{strategy}+bf16+nodrop-cpu_x2")

    assert worst(plain, offloaded, "loss") < 1e-3


@pytest.mark.parametrize("strategy", ["zero2+offload_optimizer", "zero3+offload"])
def test_the_anatomy_adds_up(measure, strategy):
    """The parts of the peak sum to what the allocator counted, and the optimizer's are those of a rank's half."""
    readings = measure(f"gpt2_tiny-{strategy}+nodrop-cpu_x2").readings
    peak, whole = readings["peak_memory_bytes"], 4 * 141_056

    assert sum(peak.parts.values()) == peak.value
    assert abs(readings["master_parameters_bytes"].value - whole / 2) < 1024
    assert abs(readings["optimizer_state_bytes"].value - whole) < 1024


@pytest.mark.parametrize(
    ("strategy", "reason"),
    [
        *(
            (f"{engine}+{name}", "only in stage 3")
            for engine in ("zero1", "zero2")
            for name in ("offload_params", "offload")
        ),
        ("zero2+nvme", "only in stage 3"),
        ("zero2+nvme_optimizer", "only in stage 3"),
        ("zero3+nvme_optimizer", "smaller than 1,048,576 bytes"),
        ("ddp+offload", "keeps everything on every device"),
    ],
)
def test_what_deepspeed_ignores_is_refused(catalog, strategy, reason):
    """Where DeepSpeed would go on without the offload that was asked for, nothing runs."""
    with pytest.raises(Refused, match=reason):
        parse_cell(f"gpt2_tiny-{strategy}-cpu_x2", catalog)


@needs_libaio
def test_optimizer_on_the_disk_agrees_with_single(measure):
    """The optimizer steps what it reads from the disk; every element of a rank's share is there."""
    single, swapped = measure("llama_mini-single-cpu_x1-b4"), measure("llama_mini-zero3+nvme_optimizer-cpu_x2")

    assert worst(single, swapped, "loss") < BOUND
    assert worst(single, swapped, "gradient_norm") < BOUND
    assert swapped.engine["optimizer_elements_on_disk"] == 6_556_160 / 2


@needs_libaio
def test_parameters_on_the_disk_change_no_number(measure):
    """Parameters that come from the disk are those that stayed in memory."""
    plain, swapped = measure("llama_mini-zero3+bf16-cpu_x2"), measure("llama_mini-zero3+nvme+bf16-cpu_x2")

    assert worst(plain, swapped, "loss") < 1e-3
    assert swapped.engine["parameter_elements_on_disk"] > 0


@needs_libaio
def test_nothing_is_left_on_the_disk_when_a_rank_is_killed(measure, runner):
    """The files of a cell go with it, however it ends."""
    killed = measure("llama_mini-zero3+nvme_optimizer-cpu_x2", "killed")
    workspaces = [server.workspace for [server] in runner._launcher._servers.values()]

    assert killed.failure.kind == "killed"
    assert [len(list(workspace.glob("cell-*"))) > 0 for workspace in workspaces] == [True]
    assert [path for workspace in workspaces for path in workspace.rglob("*.swp")] == []


def test_without_libaio_it_says_what_to_install(monkeypatch, catalog):
    """Where the operator for the disk cannot be built, the cell is unsupported and names the package."""
    monkeypatch.setenv("CC", "/bin/false")
    runner = Runner(catalog, SETTINGS)
    measurement = runner.measure(parse_cell("llama_mini-zero3+nvme_optimizer-cpu_x1", catalog))
    runner.close()

    assert measurement.outcome == "unsupported"
    assert "apt-get install libaio-dev" in measurement.failure.message
