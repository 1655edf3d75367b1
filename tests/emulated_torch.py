"""What tests/test_emulation_runs.py runs on emulated GPUs: ``emulated_torch.py FUNCTION``; prints JSON at its end."""

import json
import os
import sys

import torch

GPU = torch.device("cuda")
MIB = 2**20


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


def fresh_memory():
    """The sums of a tensor and of the next one in the same block, and whether it is the same block."""
    one = torch.full((MIB,), 7, dtype=torch.uint8).to(GPU)
    address, before = one.data_ptr(), int(one.cpu().long().sum())
    del one
    other = torch.empty(MIB, dtype=torch.uint8, device=GPU)
    return [before, int(other.cpu().long().sum()), other.data_ptr() == address]


def capacity():
    """The device's memory, whether all free memory can be allocated, and whether 2 MiB more then raise."""
    torch.empty(1, device=GPU)
    free, total = torch.cuda.mem_get_info()
    kept = torch.empty(free, dtype=torch.uint8, device=GPU)
    try:
        torch.empty(21 * MIB, dtype=torch.uint8, device=GPU)
    except torch.OutOfMemoryError as error:
        return [total, kept.numel() == free, "emulated" not in str(error)]
    return [total, True, False]


def reuse():
    """How many of 32 blocks that another stream uses are handed out again at once."""
    side, again = torch.cuda.Stream(), 0
    for _ in range(32):
        one = torch.empty(MIB, device=GPU)
        address = one.data_ptr()
        one.record_stream(side)
        del one
        again += torch.empty(MIB, device=GPU).data_ptr() == address
        torch.cuda.synchronize()
    return again


def graph():
    """A graph is captured on a side stream and replayed twice, each in a section of the counts."""
    x = torch.zeros(4, device=GPU)
    made = torch.cuda.CUDAGraph()
    with torch.cuda.graph(made):
        x += 1
        x *= 2
    torch.cuda.profiler.start()
    made.replay()
    made.replay()
    torch.cuda.profiler.stop()
    return True


def section():
    """One product of 4 x 5 and 5 x 6 matrices, one copy of 80 bytes, one synchronization, between start and stop."""
    x, y = torch.ones(4, 5).to(GPU), torch.ones(5, 6).to(GPU)
    x @ y
    torch.cuda.profiler.start()
    x @ y
    x.cpu()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()
    return True


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


def unknown():
    """A call that is not emulated."""
    return torch.fft.fft(torch.ones(8, device=GPU)).cpu().numel()


def environment():
    """The device as torch sees it."""
    known = torch.cuda.get_device_properties(0)
    capability = torch.cuda.get_device_capability()
    return [known.name, torch.cuda.device_count(), *capability, known.multi_processor_count, known.total_memory]


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
