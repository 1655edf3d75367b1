"""The user's lines at which a step allocates its tensors: of those at the peak, and of those that are kept for good.

The recorded steps have no lines, which would slow them. So a tensor at the peak has the line of the tensor that the
counted step makes in the same module with the same size. If memory grows, what is still alive some steps later is kept:
the storages are known by weak references, which keep no memory. Nothing else that a step allocates lives for long.
"""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from perfsuite.rank.memory.whereabouts import Whereabouts
from perfsuite.rank.meter import Meter, Order
from perfsuite.rank.script.batch_size import tensors_in
from perfsuite.rank.session import Session
from perfsuite.rank.trainer import StepOutcome
from perfsuite.records.sample import Reading
from perfsuite.records.step_kinds import StepKind
from perfsuite.records.suspects import AT, LINE, fold_lines

PEAK = "peak_memory_bytes"
NODE = "autograd::engine::evaluate_function: "  # before the name of a node of backward
GROWN = ("grown_bytes", "kept_tensor_bytes")
STEPS = 2  # after which a storage is kept: a batch lives until the next one replaces it


class TensorLines(Meter):
    """Gives the readings of other meters their lines."""

    processes = ("script",)
    watches = StepKind.COUNTED
    order = Order.WITHIN_CLOCK

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.whereabouts = Whereabouts(session)
        self.made: list[tuple[Any, str, int]] = []  # weak reference of a storage, line, bytes
        self.places: dict[tuple[str, int], Counter[str]] = defaultdict(Counter)  # lines by module and bytes
        self.steps = 0  # since the counted one

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        self.steps = -1
        with self.whereabouts.watch(self.trainer.model), self._mode():
            yield

    def _mode(self) -> Any:
        from torch import is_grad_enabled
        from torch.multiprocessing.reductions import StorageWeakRef
        from torch.utils._python_dispatch import TorchDispatchMode

        made, places, whereabouts = self.made, self.places, self.whereabouts

        class WatchingStorages(TorchDispatchMode):
            def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                result = function(*args, **(kwargs or {}))
                line = whereabouts.line(is_grad_enabled())
                known = {storage.data_ptr() for storage in _storages([args, kwargs])}
                for storage in _storages(result):
                    if storage.data_ptr() not in known:  # else it is a view, or written in place
                        made.append((StorageWeakRef(storage), line, storage.nbytes()))
                        places[whereabouts.here(), storage.nbytes()][line] += 1
                return result

        mode: Any = WatchingStorages
        return mode()

    def stepped(self, kind: StepKind, outcome: StepOutcome) -> None:
        self.steps += 1

    def readings(self) -> dict[str, Reading]:
        return {}

    def later(self, step: int, outcome: StepOutcome, seconds: float) -> None:
        self.steps += bool(step)

    def later_readings(self, readings: Mapping[str, Reading]) -> dict[str, Reading]:
        return self._at_peak(readings) | self._kept(readings)

    def _at_peak(self, readings: Mapping[str, Reading]) -> dict[str, Reading]:
        memory = self.session.memory
        if memory is None or PEAK not in readings:
            return {}
        lines: dict[str, Counter[str]] = defaultdict(Counter)
        for category, operation, size in memory.anatomies[memory.fullest].holders:
            place = operation.removeprefix(NODE)
            if found := self.places.get((place.partition(AT)[2], size)):
                lines[f"{category}: {place}"][found.most_common(1)[0][0]] += size
        peak = readings[PEAK]
        return {PEAK: msgspec.structs.replace(peak, lines=fold_lines(lines, peak.suspects))}

    def _kept(self, readings: Mapping[str, Reading]) -> dict[str, Reading]:
        grown = [name for name in GROWN if name in readings and readings[name].value]
        if self.steps < STEPS or not grown:
            return {}
        lines: Counter[str] = Counter()
        seen: set[int] = set()
        for reference, line, size in self.made:
            if line and reference.cdata not in seen and not reference.expired():
                seen.add(reference.cdata)
                lines[line] += size
        found = {line: size for line, size in lines.items() if size}
        return {name: msgspec.structs.replace(readings[name], lines={LINE: found}) for name in grown if found}


def _storages(values: Any) -> Iterator[Any]:
    """Those of the tensors that have one with an address: not of sparse ones, nor of wrappers around others."""
    for _, tensor in tensors_in(values):
        with contextlib.suppress(NotImplementedError, RuntimeError):
            storage = tensor.untyped_storage()
            storage.data_ptr()
            yield storage


METER = TensorLines
METRICS = ()
