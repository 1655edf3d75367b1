"""What a step's host asks of CUDA, by phase; the evidence names operators and modules.

Kernel launches: how many kernels a step launches. A graph of kernels is one launch. Copies and memsets do not count. On
a CPU there are no launches: see operators.py.

Synchronizations: how often the host waits for a device. ``.item()``, ``.cpu()`` and a copy to pageable memory are a
wait for the stream each. On a CPU there are no waits: a new ``.item()`` is one more ``aten::_local_scalar_dense`` among
operators.py's operators.
"""

import contextlib

from perfsuite.catalog.definitions import OF_A_STEP, Metric
from perfsuite.meters._cuda_runtime import LAUNCHES, SYNCHRONISATIONS, Calls, profiled, reading
from perfsuite.rank.meter import Meter
from perfsuite.rank.session import Session
from perfsuite.records.sample import Reading
from perfsuite.records.step_kinds import StepKind
from perfsuite.system.units import WHOLE

COUNTED = {"kernel_launches": LAUNCHES, "synchronisations": SYNCHRONISATIONS}


class RuntimeCalls(Meter):
    """Profiles one step on CUDA."""

    watches = StepKind.PROFILED

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.calls: Calls = Calls()

    def watching(self) -> contextlib.AbstractContextManager[None]:
        if self.session.job.device != "cuda":
            return contextlib.nullcontext()
        return profiled(self.session, self.trainer.model, self.calls)

    def readings(self) -> dict[str, Reading]:
        if self.session.job.device != "cuda":
            return {}
        return {metric: reading(self.calls, functions) for metric, functions in COUNTED.items()}


METER = RuntimeCalls
METRICS = (
    # CUDA only.
    Metric("kernel_launches", "kernel launches/step", WHOLE, hold="exact", optional=True, materiality=OF_A_STEP),
    Metric("synchronisations", "synchronizations/step", WHOLE, hold="exact", optional=True),
)
