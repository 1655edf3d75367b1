"""Kernel launches: how many kernels a step launches on CUDA, by phase; the evidence names operators and modules.

A graph of kernels is one launch. Copies and memsets do not count. On a CPU there are no launches: see operators.py.
"""

from perfsuite.catalog.definitions import OF_A_STEP, Metric
from perfsuite.meters._cuda_runtime import LAUNCHES, CudaRuntime
from perfsuite.system.units import WHOLE


class Launches(CudaRuntime):
    """Counts the runtime's launching calls."""

    metric, functions = "kernel_launches", LAUNCHES


METER = Launches
METRICS = (
    # CUDA only.
    Metric("kernel_launches", "kernel launches/step", WHOLE, hold="exact", optional=True, materiality=OF_A_STEP),
)
