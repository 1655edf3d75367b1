"""The rank server: what it may do before it forks, and what a rank asks of its GPU before it joins."""

import importlib
import subprocess
import sys

import pytest
from sampling import slow_unless

from perfsuite.launch.server import warm_up
from perfsuite.rank.process_group import why_no_kernels

TRAPPED = """
import json, socket, sys
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

mine, other = socket.socketpair()
server = Server(mine, Path("nowhere"), sys.argv[1])
server.fork = lambda request, rank: 7
request = dict(start="nowhere", ranks=[0], strategy=sys.argv[2], model=sys.argv[3], catalogs=[], import_path=[])
server.answer(request)
print(other.recv(65536).decode().strip(), *touches[:1])
"""


@pytest.mark.parametrize(
    ("strategy", "model"),
    slow_unless(
        lambda case: case[0] == "zero3+bf16",
        [
            ("single+bf16", "T5ForConditionalGeneration"),
            ("zero3+bf16", "BloomForCausalLM"),
            ("zero3+nvme", "GPT2LMHeadModel"),
            ("single+adamw8bit_torchao", "LlamaForCausalLM"),
            ("single+lora", "BloomForCausalLM"),
        ],
    ),
)
def test_the_server_of_cuda_ranks_never_touches_cuda(strategy, model):
    """A process that did could fork none that can use it, and importing transformers' models does, by torchao."""
    command = [sys.executable, "-c", TRAPPED, "cuda", strategy, model]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert said.strip() == '{"started": [7]}'


@pytest.mark.slow
def test_the_trap_would_close():
    """What the ranks import for themselves on CUDA does touch it."""
    command = [sys.executable, "-c", TRAPPED, "cpu", "single+bf16", "T5ForConditionalGeneration"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert "CUDA was touched" in said


WARM = """
import os, socket, sys
from pathlib import Path
from perfsuite.catalog.registry import Catalog
from perfsuite.catalog.cell import parse_cell
from perfsuite.launch.jobs import make_job
from perfsuite.records.codec import write
from perfsuite.launch.server import Server

folder, catalog = Path(sys.argv[1]), Catalog()
write(folder / "job.json", make_job(parse_cell("gpt2_tiny-single-cpu_x1", catalog), catalog, (), steps=1, warmup=0))
server = Server(socket.socketpair()[0], folder, "cuda")
request = dict(start=str(folder), ranks=1, strategy="single", model="GPT2LMHeadModel", catalogs=[], import_path=[])
pid = server.fork(request, 0)
_, status = os.waitpid(pid, 0)
print(os.waitstatus_to_exitcode(status), "transformers.models.gpt2.modeling_gpt2" in sys.modules)
"""


def test_a_rank_of_a_cuda_server_imports_for_itself(tmp_path):
    """Here it trains on the CPU; what it does before it joins is that of CUDA's."""
    command = [sys.executable, "-c", WARM, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    log = (tmp_path / "rank0.log").read_text()

    assert done.stdout.split() == ["0", "False"], log
    assert (tmp_path / "rank0.json").exists()


@pytest.mark.parametrize(
    ("strategy", "imported"),
    [
        ("single+lora", {"torch._inductor.compile_fx", "torch._dynamo"}),
        ("ddp+hf_trainer", {"torch._inductor.compile_fx", "datasets", "deepspeed", "torch._dynamo"}),
        ("hf_map", {"datasets", "torch._dynamo"}),
        ("all_reduce", {"torch._dynamo"}),
        ("generate", set()),
    ],
)
def test_the_server_imports_what_each_rank_would(monkeypatch, strategy, imported):
    """Once, before it forks. An import that fails is left to the rank, which says what it needs the module for."""
    asked, find = set(), importlib.import_module

    def fail(name):
        asked.add(name)
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", lambda name: find(name) if "perfsuite" in name else fail(name))
    warm_up({"strategy": strategy, "model": "", "catalogs": []}, set(), lambda message: None)

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
