"""The fastest product of a CPU, as its peak."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfsuite.rank.session import Session

MATMUL_SIZES = (64, 128, 512)  # the fastest counts: some kernels are fast only at small sizes
MATMUL_SECONDS = 0.01  # per size, layout and dtype; the best run within this time


def measure_matmul(session: Session) -> float:
    """FLOP/s of the best square matmul on this rank's share of the CPU, with the same kernels as the step.

    In the layouts of forward and backward, and in fp32 too: without instructions for the compute dtype, a CPU's fastest
    matmuls are those that the cell keeps in fp32.
    """
    import torch

    best = 0.0
    for dtype, size in itertools.product(dict.fromkeys((torch.float32, session.compute_dtype)), MATMUL_SIZES):
        one, other = (torch.randn(size, size).to(dtype) for _ in range(2))
        for left, right in ((one, other), (one, other.t()), (one.t(), other)):
            start = time.perf_counter()
            torch.mm(left, right)
            begin = now = time.perf_counter()
            if now - start > MATMUL_SECONDS and 2 * size**3 / (now - start) < best / 2:
                continue  # it takes long and would not be the fastest: bf16 without instructions for it
            while now - begin < MATMUL_SECONDS:
                start = now
                torch.mm(left, right)
                now = time.perf_counter()
                best = max(best, 2 * size**3 / (now - start))
    return best
