"""A user's script on emulated GPUs: its memory is that of the cell with the same training; failures are told."""

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.emulated
DEVICE = os.environ.get("EMULATED", "h100")
MEMORY = (sys.executable, "-m", "perfsuite.cli.main", "memory")
TRAIN = """
import os, torch
from transformers import GPT2Config, GPT2LMHeadModel

rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
config = GPT2Config(
    vocab_size=512, n_positions=128, bos_token_id=511, eos_token_id=511, n_layer=2, n_embd=64, n_head=4, use_cache=False
)
device = f"cuda:{rank}" if torch.cuda.is_available() else "cpu"
model = module = GPT2LMHeadModel(config).to(device).train()
if ranks > 1:
    torch.distributed.init_process_group("nccl")
    module = torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
kept = None
for _ in range(30):
    ids, mask = torch.randint(0, 511, (2, 64)), torch.ones(2, 64, dtype=torch.long)
    mask[0, 40:] = 0
    labels = ids.masked_fill(mask == 0, -100).to(device)
    ids, mask = ids.to(device), mask.to(device)
    total = torch.zeros((), device=device)
    output = module(input_ids=ids, attention_mask=mask, labels=labels)
    loss = output.loss * 1.5
    total += loss.detach()
    del output
    loss.backward()
    del loss
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    kept = (total, norm)
"""
TOO_LARGE = """
import torch
model, kept = torch.nn.Linear(8, 8).cuda(), []
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(30):
    if step >= {step}:
        kept.append(torch.empty(100 * 2**30, dtype=torch.uint8, device="cuda"))
    model(torch.ones(2, 8, device="cuda")).mean().backward()
    optimizer.step()
"""
KEEPS = 'kept.append(torch.empty(100 * 2**30, dtype=torch.uint8, device="cuda"))'
UNKNOWN = TOO_LARGE.replace(KEEPS, "torch.fft.fft(torch.ones(8).cuda())")


def memory(folder, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*MEMORY, *words], cwd=folder, capture_output=True, text=True, timeout=900, check=False)


def run(folder, text: str, *words: str, hardware: str = f"{DEVICE}_x1") -> subprocess.CompletedProcess[str]:
    """``perfsuite memory --hardware HARDWARE --json made.json -- WORDS train.py``."""
    (folder / "train.py").write_text(text)
    return memory(folder, "--hardware", hardware, "--json", "made.json", "--", *(words or ("python",)), "train.py")


@pytest.mark.parametrize(
    ("strategy", "launcher"), [("single", ("python",)), ("ddp", ("torchrun", "--nproc-per-node", "2"))]
)
def test_a_script_needs_what_its_cell_needs(tmp_path, strategy, launcher):
    """To the byte: gpt2_tiny, written by hand. The cell knows its batches by name, the script's are other tensors."""
    hardware = f"{DEVICE}_x{2 if strategy == 'ddp' else 1}"
    done = run(tmp_path, TRAIN, *launcher, hardware=hardware)
    cell = memory(tmp_path, f"gpt2_tiny-{strategy}-{hardware}", "--emulated", "--json", "cell.json")
    assert (done.returncode, cell.returncode) == (0, 0), done.stderr + cell.stderr
    ours, its = (json.loads((tmp_path / name).read_text()) for name in ("made.json", "cell.json"))
    peaks = [one["readings"]["peak_memory_bytes"] for one in (ours, its)]

    assert peaks[0]["value"] == peaks[1]["value"]
    assert {**peaks[1]["parts"], **peaks[0]["parts"]}.keys() == peaks[1]["parts"].keys()
    assert "on emulated GPUs, no real one" in done.stdout
    assert "Emulated, it fits: " in done.stdout
    assert ours["machine"]["device"].startswith("emulated ")
    assert "step_time_seconds" not in ours["readings"]


@pytest.mark.parametrize(("step", "where"), [(4, "of step 5: "), (0, " at its start: ")])
def test_a_script_that_does_not_fit_says_where(tmp_path, step, where):
    """Also in its first step, before its loop is known. It is no failure: the answer is that it does not fit."""
    done = run(tmp_path, TOO_LARGE.format(step=step))

    assert done.returncode == 1, done.stderr
    assert "Emulated, it runs out of memory: Rank 0: OutOfMemoryError " in done.stdout
    assert where in done.stdout
    assert "Tried to allocate 100.00 GiB" in done.stdout


def test_what_is_not_emulated_is_named(tmp_path):
    """cuFFT is not."""
    done = run(tmp_path, UNKNOWN.format(step=4))

    assert done.returncode == 2
    assert "emulated, it fails: Rank 0: The script ended by SIGABRT" in done.stderr
    assert "cuFFT" in done.stderr or "cufft" in done.stderr


def test_another_number_of_ranks_is_told(tmp_path):
    """With the hardware that the command has."""
    done = run(tmp_path, TRAIN, hardware=f"{DEVICE}_x2")

    assert done.returncode == 2
    assert f"The script trains on 1 rank, but its cell has 2: its hardware is {DEVICE}_x1." in done.stderr
