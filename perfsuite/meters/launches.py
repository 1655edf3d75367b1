"""Kernel launches: how many kernels a step launches on CUDA, by phase; the evidence is which operators do, and where.

A graph of kernels is one launch. Copies and memsets are none. On a CPU there are no launches: operators.py counts what
a step computes there.
"""

from perfsuite.catalog.definitions import Metric
from perfsuite.meters._cuda_runtime import LAUNCHES, CudaRuntime
from perfsuite.units import show_whole


class Launches(CudaRuntime):
    """Calls of the runtime that launch."""

    metric, functions = "kernel_launches", LAUNCHES


METER = Launches
METRICS = (
    Metric(
        name="kernel_launches",
        title="kernel launches/step",
        show=show_whole,
        hold="exact",
        optional=True,  # CUDA alone
    ),
)
