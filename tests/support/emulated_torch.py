"""What test_emulated_torch.py runs on emulated GPUs: ``emulated_torch.py FUNCTION``; prints JSON at its end."""

import json
import os
import sys

import torch

GPU = torch.device("cuda")


def computed():
    """Names of operations whose result on the GPU differs from the CPU's."""
    torch.manual_seed(0)
    x, y, index = torch.randn(8, 16), torch.randn(16, 8), torch.randint(0, 8, (12,))
    operations = {
        "add": lambda x, y, index: x + y.t(),
        "matmul": lambda x, y, index: x @ y,
        "bmm": lambda x, y, index: torch.bmm(x[None], y[None]),
        "softmax": lambda x, y, index: x.softmax(-1),
        "log_softmax": lambda x, y, index: x.log_softmax(-1),
        "layer_norm": lambda x, y, index: torch.nn.functional.layer_norm(x, (16,)),
        "gelu": lambda x, y, index: torch.nn.functional.gelu(x),
        "exp2": lambda x, y, index: x.exp2(),  # torch writes its kernel as text, for NVRTC
        "sum": lambda x, y, index: x.sum(0),
        "mean": lambda x, y, index: x.mean(),
        "norm": lambda x, y, index: x.norm(),
        "max": lambda x, y, index: x.max(1).indices,
        "argmax": lambda x, y, index: x.argmax(-1),
        "topk": lambda x, y, index: x.topk(3).values,
        "sort": lambda x, y, index: x.sort().indices,
        "cumsum": lambda x, y, index: x.cumsum(0),
        "where": lambda x, y, index: torch.where(x > 0, x, 0),
        "index_select": lambda x, y, index: x.index_select(0, index),
        "indexing": lambda x, y, index: x[index],
        "gather": lambda x, y, index: x.gather(1, index.view(1, -1)),
        "embedding": lambda x, y, index: torch.nn.functional.embedding(index, x),
        "nonzero": lambda x, y, index: (x > 0).nonzero(),
        "unique": lambda x, y, index: index.unique(),
        "cat": lambda x, y, index: torch.cat([x, y.t()]),
        "bfloat16": lambda x, y, index: x.bfloat16(),
        "product_in_bfloat16": lambda x, y, index: x.bfloat16() * 3,
        "arange": lambda x, y, index: torch.arange(10, device=x.device),
        "isfinite": lambda x, y, index: torch.isfinite(x).all(),
        "equal": lambda x, y, index: torch.tensor(torch.equal(x, x.clone()) and not torch.equal(x, x + 1)),
        "item": lambda x, y, index: torch.tensor(index.sum().item()),
    }
    device = x.to(GPU), y.to(GPU), index.to(GPU)
    pairs = {name: (run(*device).cpu(), run(x, y, index)) for name, run in operations.items()}
    return [name for name, (ours, its) in pairs.items() if ours.shape != its.shape or not torch.allclose(ours, its)]


def random_numbers():
    """Whether numbers drawn on the GPU are zeros, and the CPU's next ones those of a run without them."""
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    drawn = torch.randn(8, device=GPU)
    return [bool((drawn == 0).all()), torch.equal(torch.rand(3), expected)]


def profiled():
    """Runtime calls of the profiler by name, and the operator around the launch of an addition."""
    x = torch.ones(4).to(GPU)
    torch.cuda.synchronize()
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profiler:
        x + x
        x + x
        torch.cuda.synchronize()
    events = [event for event in profiler.events() if event.name.startswith("cuda")]
    launches = [event.cpu_parent.name if event.cpu_parent else "" for event in events if "Launch" in event.name]
    return [launches, sum(event.name == "cudaDeviceSynchronize" for event in events)]


def elapsed():
    """Milliseconds between two events."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    torch.ones(1000, 1000, device=GPU)
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end)


print(json.dumps(globals()[sys.argv[1]]()), flush=True)
os._exit(0)
