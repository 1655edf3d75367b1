"""What the backward of an embedding allocates on CUDA beside its result, against torch's own allocator."""

import json
import subprocess
import sys

import pytest

TRACED = """
import itertools, json, sys
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from perfsuite.trace.cuda import kernels_allocate
from perfsuite.trace.recorder import Recorder

def peak(count, rows, width, dtype, index):
    recorder = Recorder()
    with FakeTensorMode():
        gradient = torch.empty(count, width, dtype=getattr(torch, dtype))
        indices = torch.empty(count, dtype=getattr(torch, index))
        with kernels_allocate(recorder), recorder:
            out = torch.ops.aten.embedding_dense_backward(gradient, indices, rows, -1, False)
    return max(itertools.accumulate(size for _, size, _, _ in recorder.events))

print(json.dumps([peak(*one) for one in json.loads(sys.argv[1])]))
"""
# Measured with the memory history of the CUDA build of torch 2.13.0 on an emulated H100.
MEASURED = {
    (3072, 32, 4, "float32", "int64"): 512,
    (3073, 32, 4, "float32", "int64"): 4 * 24584 + 512 + 8 + 1279,
    (4096, 32, 4, "float32", "int64"): 4 * 32768 + 512 + 8 + 1279,
    (4096, 32, 4, "bfloat16", "int64"): 4 * 32768 + 256 + 8 + 1279,
    (8192, 32, 4, "float32", "int32"): 4 * 32768 + 512 + 8 + 1279,
    (8192, 5000, 768, "bfloat16", "int64"): 3 * 65536 + 7680000 + 2 * (8 + 40000) + 46552 + 17875968,
    (8192, 50257, 770, "float32", "int64"): 3 * 65536 + 154791560 + 2 * (8 + 65536) + 72088 + 27753880,
}


@pytest.fixture(scope="module")
def traced():
    """The traced peaks by case, all in one process."""
    command = [sys.executable, "-c", TRACED, json.dumps(list(MEASURED))]
    return dict(zip(MEASURED, json.loads(subprocess.check_output(command)), strict=True))


@pytest.mark.parametrize("case", MEASURED, ids=str)
def test_the_peak_is_the_allocators(traced, case):
    """Few indices are not sorted, few rows are added to at once, and more go through pieces of ten: to the byte."""
    assert traced[case] == MEASURED[case]
