"""The user's lines at which a step allocates tensors that are still alive some steps later, if memory grows.

The storages of the counted step are known by weak references, which keep no memory. Nothing that a step allocates
lives for long: gradients and batches are replaced, and the optimizer's state was made before.
"""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from perfsuite.rank.meter import Meter, Order
from perfsuite.rank.script.batch_size import tensors_in
from perfsuite.rank.session import Session
from perfsuite.rank.trainer import StepOutcome
from perfsuite.rank.users_lines import UsersLines
from perfsuite.records.sample import Reading
from perfsuite.records.step_kinds import StepKind
from perfsuite.records.suspects import LINE

GROWN = ("grown_bytes", "kept_tensor_bytes")
STEPS = 2  # after which a storage is kept: a batch lives until the next one replaces it


class KeptTensors(Meter):
    """Gives the readings of other meters their lines."""

    processes = ("script",)
    watches = StepKind.COUNTED
    order = Order.WITHIN_CLOCK

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.users = UsersLines()
        self.made: list[tuple[Any, str, int]] = []  # weak reference of a storage, line, bytes
        self.steps = 0  # since the counted one

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        self.steps = -1
        with self._mode():
            yield

    def _mode(self) -> Any:
        from torch.multiprocessing.reductions import StorageWeakRef
        from torch.utils._python_dispatch import TorchDispatchMode

        made, users = self.made, self.users

        class WatchingStorages(TorchDispatchMode):
            def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                result = function(*args, **(kwargs or {}))
                known = {one.untyped_storage().data_ptr() for _, one in tensors_in([args, kwargs])}
                for _, one in tensors_in(result):
                    storage = one.untyped_storage()
                    if storage.data_ptr() not in known:  # else it is a view, or written in place
                        made.append((StorageWeakRef(storage), users.innermost(sys._getframe(1)), storage.nbytes()))
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


METER = KeptTensors
METRICS = ()
