"""Operators: how many a step calls, by phase, counted in the counted step; the evidence names them and their modules.

These are the operators after composite ones are decomposed, as the backends get them. Each is one more kernel on a GPU.
Views count too: a dispatch mode sees them, and they cost the host as much as others.
"""

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

from perfsuite.catalog.definitions import OF_A_STEP, OF_STEPS, Metric
from perfsuite.rank.memory.whereabouts import Whereabouts
from perfsuite.rank.meter import Meter, by_part
from perfsuite.rank.session import Session
from perfsuite.records.sample import Reading
from perfsuite.records.suspects import MOST, locate
from perfsuite.units import WHOLE


class Operators(Meter):
    """Collectives are counted in communication.py."""

    processes = OF_STEPS
    watches = "counted"
    most: int | None = 2 * MOST  # operators that a reading names

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.whereabouts = Whereabouts(session)
        self.calls: Counter[tuple[str, str, str]] = Counter()  # by phase, operator and module

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        with self.whereabouts.watch(self.trainer.model), self._mode():
            yield

    def _mode(self) -> Any:
        from torch.utils._python_dispatch import TorchDispatchMode

        whereabouts, calls = self.whereabouts, self.calls

        class Counting(TorchDispatchMode):
            def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                if function.namespace == "aten":
                    calls[whereabouts.phase, f"aten::{function._opname}", whereabouts.here()] += 1
                return function(*args, **(kwargs or {}))

        mode: Any = Counting
        return mode()

    def readings(self) -> dict[str, Reading]:
        calls = {f"{phase}: {locate(name, module)}": count for (phase, name, module), count in self.calls.items()}
        return {"operators": by_part(calls, self.most)}


METER = Operators
METRICS = (Metric("operators", "operators/step", WHOLE, hold="exact", optional=True, materiality=OF_A_STEP),)
