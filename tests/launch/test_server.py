"""The rank server: what it may do before it forks, and what a rank asks of its GPU before it joins."""

import importlib
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from sampling import slow_unless

from perfsuite.catalog.cell import parse_cell
from perfsuite.catalog.registry import Catalog
from perfsuite.environments.environments import Environment
from perfsuite.launch.jobs import make_job
from perfsuite.launch.server import warm_up
from perfsuite.rank.process_group import why_no_kernels
from perfsuite.records.codec import write
from perfsuite.records.job import JOB, Job
from perfsuite.run.runner import Runner, Settings

CATALOG = Catalog()

TRAPPED = """
import socket, sys
import torch

touches = []

def touched(*_, **__):
    touches.append("CUDA was touched")
    raise RuntimeError

torch.cuda.is_available, torch.version.cuda = lambda: True, "13.0"
torch.cuda._lazy_init = torch.cuda.current_device = torch.cuda.get_device_capability = touched
torch.cuda.get_device_properties = torch.cuda.get_device_name = touched

from pathlib import Path
from perfsuite.launch.server import Server
from perfsuite.records.job import Start

mine, other = socket.socketpair()
server = Server(mine, Path("nowhere"), sys.argv[1])
server.fork = lambda folder, job, rank: 7
server.answer(Start(folder=sys.argv[2], ranks=[0]))
print(other.recv(65536).decode().strip(), *touches[:1])
"""


def said_by(device: str, cell: str, folder: Path) -> str:
    """The output of a trapped server that starts a rank of the cell."""
    write_job(cell, folder)
    command = [sys.executable, "-c", TRAPPED, device, str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def write_job(cell: str, folder: Path) -> Job:
    """The job of a cell in the folder."""
    job = make_job(parse_cell(cell, CATALOG), CATALOG, (), steps=1, warmup=0)
    write(folder / JOB, job)
    return job


@pytest.mark.parametrize(
    "cell",
    slow_unless(
        lambda cell: "zero3+bf16" in cell,
        [
            "t5_tiny-single+bf16-cpu_x1",
            "bloom_tiny-zero3+bf16-cpu_x2",
            "gpt2_small-zero3+nvme-cpu_x2",
            "llama_tiny-single+adamw8bit_ao-cpu_x1",
            "bloom_tiny-single+lora-cpu_x1",
        ],
    ),
)
def test_the_server_of_cuda_ranks_never_touches_cuda(cell: str, tmp_path: Path) -> None:
    """A process that did could fork none that can use it, and importing transformers' models does, by torchao."""
    assert said_by("cuda", cell, tmp_path).strip() == '{"started": [7]}'


@pytest.mark.slow
def test_the_trap_would_close(tmp_path: Path) -> None:
    """What the ranks import for themselves on CUDA does touch it."""
    assert "CUDA was touched" in said_by("cpu", "t5_tiny-single+bf16-cpu_x1", tmp_path)


WARM = """
import os, socket, sys
from pathlib import Path
from perfsuite.launch.server import Server
from perfsuite.records.codec import read
from perfsuite.records.job import JOB, Job
from perfsuite.run.runner import Runner, Settings

folder = Path(sys.argv[1])
server = Server(socket.socketpair()[0], folder, "cuda")
pid = server.fork(folder, read(folder / JOB, Job), 0)
_, status = os.waitpid(pid, 0)
print(os.waitstatus_to_exitcode(status), "transformers.models.gpt2.modeling_gpt2" in sys.modules)
"""


def test_a_rank_of_a_cuda_server_imports_for_itself(tmp_path):
    """Here it trains on the CPU; what it does before it joins is that of CUDA's."""
    write_job("gpt2_tiny-single-cpu_x1", tmp_path)
    command = [sys.executable, "-c", WARM, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    log = (tmp_path / "rank0.log").read_text()

    assert done.stdout.split() == ["0", "False"], log
    assert (tmp_path / "rank0.json").exists()


@pytest.mark.parametrize(
    ("cell", "imported"),
    [
        ("gpt2_tiny-single+lora-cpu_x1", {"torch._inductor.compile_fx", "torch._dynamo"}),
        ("gpt2_tiny-ddp+hf_trainer-cpu_x2", {"torch._inductor.compile_fx", "datasets", "deepspeed", "torch._dynamo"}),
        ("rows-hf_map-cpu_x1", {"datasets", "torch._dynamo"}),
        ("wire-all_reduce-cpu_x2", {"torch._dynamo"}),
        ("gpt2_tiny-generate-cpu_x1", set()),
    ],
)
def test_the_server_imports_what_each_rank_would(monkeypatch, tmp_path, cell, imported):
    """Once, before it forks. An import that fails is left to the rank, which says what it needs the module for."""
    asked, find = set(), importlib.import_module

    def fail(name):
        asked.add(name)
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", lambda name: find(name) if "perfsuite" in name else fail(name))
    job = msgspec.structs.replace(write_job(cell, tmp_path), model=CATALOG.get("model", "rows"))  # imports nothing
    warm_up(job, set(), lambda message: None)

    assert asked == imported


CU130 = ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120", "compute_120")  # torch 2.13.0 of PyPI


@pytest.mark.parametrize(
    ("capability", "built", "runs"),
    [
        ((7, 5), CU130, True),
        ((8, 9), CU130, True),
        ((12, 1), CU130, True),
        ((13, 0), CU130, True),
        ((7, 0), CU130, False),
        ((9, 0), ("sm_80", "sm_100"), False),
        ((9, 0), ("sm_90a",), True),
        ((9, 0), (), False),
    ],
)
def test_a_device_without_kernels_is_told(capability, built, runs):
    """A V100 has none in the torch of PyPI: that is no failure of the cell, but something this machine cannot run."""
    reason = why_no_kernels(capability, built)

    assert bool(reason) != runs
    assert runs or f"but this device has {capability[0]}.{capability[1]}." in reason


def test_a_server_that_failed_is_not_asked_again(tmp_path, cold):
    """The next cell has the reason at once, and does not wait for an answer until its limit."""
    (tmp_path / "transformers.py").write_text("raise RuntimeError('broken')")
    settings = Settings(steps=1, start_timeout=30.0)
    with closing(Runner(CATALOG, settings, Environment(path=(str(tmp_path),)))) as runner:
        done = [runner.measure(parse_cell("gpt2_tiny-single-cpu_x1", CATALOG)) for _ in range(2)]

    assert [one.failure and one.failure.message for one in done] == ["The rank server failed: RuntimeError: broken"] * 2
