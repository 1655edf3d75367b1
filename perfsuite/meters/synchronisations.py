"""Synchronizations: how often a step's host waits for a CUDA device, by phase; the evidence names the waiting callers.

``.item()``, ``.cpu()`` and a copy to pageable memory are a wait for the stream each. On a CPU there are no waits: a
new ``.item()`` is one more ``aten::_local_scalar_dense`` among operators.py's operators.
"""

from perfsuite.catalog.definitions import Metric
from perfsuite.meters._cuda_runtime import SYNCHRONISATIONS, CudaRuntime
from perfsuite.system.units import WHOLE


class Synchronisations(CudaRuntime):
    """Counts the runtime's waiting calls."""

    metric, functions = "synchronisations", SYNCHRONISATIONS


METER = Synchronisations
METRICS = (
    # CUDA only.
    Metric("synchronisations", "synchronizations/step", WHOLE, hold="exact", optional=True),
)
