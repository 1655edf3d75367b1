"""Operators: how many a step calls, by phase, counted in the counted step; the evidence names them and their modules.

These are the operators after composite ones are decomposed, as the backends get them. Each is one more kernel on a GPU.
Views count too: a dispatch mode sees them, and they cost the host as much as others.

Those that autograd records for a backward pass are counted beside them: with gradients enabled, on a tensor that
requires one. An evaluation without ``torch.no_grad()`` calls the same operators, but keeps what their backward needs.
"""

import contextlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from perfsuite.catalog.definitions import OF_A_STEP, Materiality, Metric
from perfsuite.catalog.processes import IN_TORCH
from perfsuite.rank.memory.whereabouts import Whereabouts
from perfsuite.rank.meter import Meter, by_part
from perfsuite.rank.session import Session
from perfsuite.records.sample import Reading
from perfsuite.records.step_kinds import StepKind
from perfsuite.records.suspects import MOST, locate
from perfsuite.system.units import WHOLE


class Operators(Meter):
    """Collectives are counted in communication.py."""

    processes = IN_TORCH
    watches = StepKind.COUNTED
    most: int | None = 2 * MOST  # operators that a reading names

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.whereabouts = Whereabouts(session)
        self.calls: Counter[tuple[str, str, str]] = Counter()  # by phase, operator and module
        self.recorded: Counter[tuple[str, str, str]] = Counter()  # those of them that autograd records
        self.lines: dict[tuple[str, str, str], Counter[str]] = defaultdict(Counter)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        with self.whereabouts.watch(self.trainer.model), self._mode():
            yield

    def _mode(self) -> Any:
        from torch import is_grad_enabled
        from torch.utils._python_dispatch import TorchDispatchMode

        whereabouts, calls, recorded, lines = self.whereabouts, self.calls, self.recorded, self.lines

        class CountingOperators(TorchDispatchMode):
            def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                if function.namespace == "aten":
                    call = whereabouts.phase, f"aten::{function._opname}", whereabouts.here()
                    calls[call] += 1
                    records = is_grad_enabled() and _requires_gradient([*args, *(kwargs or {}).values()])
                    recorded[call] += records
                    lines[call][whereabouts.line(records)] += 1
                return function(*args, **(kwargs or {}))

        mode: Any = CountingOperators
        return mode()

    def readings(self) -> dict[str, Reading]:
        return {"operators": self._reading(self.calls), "recorded_operators": self._reading(self.recorded)}

    def _reading(self, counts: Counter[tuple[str, str, str]]) -> Reading:
        calls = {_called(*call): count for call, count in counts.items() if count}
        return by_part(calls, self.most, {_called(*call): self.lines[call] for call in counts})


def _called(phase: str, name: str, module: str) -> str:
    return f"{phase}: {locate(name, module)}"


def _requires_gradient(arguments: Iterable[Any]) -> bool:
    """Whether one of an operator's tensors does, those in its lists included."""
    return any(
        _requires_gradient(argument)
        if isinstance(argument, list | tuple)
        else getattr(argument, "requires_grad", False)
        for argument in arguments
    )


METER = Operators
OF_A_FORWARD = Materiality(0.05, "A release adds views to a layer. An evaluation is a larger part of what is recorded.")
METRICS = (
    Metric("operators", "operators/step", WHOLE, hold="exact", optional=True, materiality=OF_A_STEP),
    Metric(
        "recorded_operators",
        "operators with a backward/step",
        WHOLE,
        hold="exact",
        optional=True,
        materiality=OF_A_FORWARD,
    ),
)
