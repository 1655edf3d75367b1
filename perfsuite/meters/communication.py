"""Communication: bytes per optimizer step and collective, counted in one step.

A collective's bytes are those of the whole message: all-reduce, broadcast and point to point count their tensor,
all-gather its output, reduce-scatter its input. The traffic of a ring per rank follows from it:
2(n-1)/n of an all-reduce, (n-1)/n of the others. The evidence is the calling operator, with its phase and module.

Who takes part is counted as well, barriers included: a barrier sends nothing and waits for all, and an all-reduce over
a group of one rank exchanges nothing.
"""

import contextlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from perfsuite.catalog.definitions import Metric
from perfsuite.catalog.processes import PROCESSES
from perfsuite.rank.memory.whereabouts import Whereabouts
from perfsuite.rank.meter import Meter, by_part, on_dtensors
from perfsuite.rank.session import Session
from perfsuite.records.sample import Reading
from perfsuite.records.step_kinds import StepKind
from perfsuite.records.suspects import locate
from perfsuite.system.units import BYTES, WHOLE, show_several

# c10d operator → (name, position of the argument whose bytes are the message)
_COLLECTIVES = {
    "allreduce_": ("all_reduce", 0),
    "allreduce_coalesced_": ("all_reduce", 0),
    "broadcast_": ("broadcast", 0),
    "reduce_": ("reduce", 0),
    "_allgather_base_": ("all_gather", 0),
    "allgather_": ("all_gather", 0),
    "allgather_coalesced_": ("all_gather", 0),
    "allgather_into_tensor_coalesced_": ("all_gather", 0),
    "_reduce_scatter_base_": ("reduce_scatter", 1),
    "reduce_scatter_": ("reduce_scatter", 1),
    "reduce_scatter_tensor_coalesced_": ("reduce_scatter", 1),
    "alltoall_": ("all_to_all", 1),
    "alltoall_base_": ("all_to_all", 1),
    "gather_": ("gather", 0),
    "scatter_": ("scatter", 1),
    "send": ("send", 0),
    "recv_": ("recv", 0),
    "recv_any_source_": ("recv", 0),
}
_FUNCTIONAL = {
    "all_reduce": "all_reduce",
    "all_reduce_": "all_reduce",
    "all_gather_into_tensor": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter",
    "all_to_all_single": "all_to_all",
    "broadcast": "broadcast",
}
# A dispatch mode does not see what an operator of another library calls.
_WRAPPED = {"deepspeed::dim_zero_all_to_all": ("all_to_all", 0)}
_BARRIERS = {"barrier": "barrier", "monitored_barrier_": "barrier"}
_SILENT = {*_BARRIERS, "wait_tensor", "_wrap_tensor_autograd"}


class Communication(Meter):
    """Counts in the one counted step, with a dispatch mode that sees every collective of every library."""

    processes = tuple(name for name, process in PROCESSES.items() if process.torch)
    watches = StepKind.COUNTED

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.whereabouts = Whereabouts(session)
        self.bytes: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self.groups: Counter[str] = Counter()
        self.lines: dict[str, Counter[str]] = defaultdict(Counter)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        with self.whereabouts.watch(self.trainer.model), counting_mode(self._count, self.whereabouts.here, self._join):
            yield

    def _count(self, collective: str, operator: str, size: int, module: str) -> None:
        call = locate(f"{self.whereabouts.phase}'s {operator}", module)
        suspect = f"{collective}: {call}"
        self.bytes[suspect] += size
        self.calls[suspect] += 1
        self.lines[suspect][self.whereabouts.line(False)] += size

    def _join(self, collective: str, ranks: int) -> None:
        self.groups[f"{collective} of {show_several(ranks, 'rank')}"] += 1

    def readings(self) -> dict[str, Reading]:
        readings = {
            "communication_bytes": by_part(self.bytes, lines=self.lines),
            "collectives": by_part(self.calls, lines=self.lines),
        }
        if self.session.world_size > 1:
            readings["joined_groups"] = Reading(value=self.groups.total(), parts=dict(self.groups))
        theory = self.trainer.traffic()
        if theory is not None:
            readings["communication_theory_bytes"] = by_part(theory, 0)
        return readings


def counting_mode(
    count: Callable[[str, str, int, str], None],
    here: Callable[[], str] = str,
    join: Callable[[str, int], None] = lambda collective, ranks: None,
) -> Any:
    """A TorchDispatchMode that calls ``count`` for every collective with its name, its operator, its bytes and its
    place, and ``join`` for every collective and barrier with its name and the number of ranks of its group.

    Raises NotImplementedError at a collective that it does not know: a count must not silently miss one.
    """
    from torch.utils._python_dispatch import TorchDispatchMode

    class CountingCollectives(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if on_dtensors(types):
                return NotImplemented
            module = here()  # asked at every operator
            result = function(*args, **(kwargs or {}))
            message = message_of(function, args, result)
            if message:
                count(message[0], function._opname, message[1], module)
            collective = message[0] if message else _BARRIERS.get(function._opname)
            if collective and function.namespace != "deepspeed":
                join(collective, _ranks_of(args))
            return result

    mode: Any = CountingCollectives
    return mode()


def message_of(function: Any, args: Any, result: Any) -> tuple[str, int] | None:
    """The collective of an operator with the bytes of its message; None for an operator that sends nothing.

    Raises NotImplementedError at a collective that it does not know.
    """
    namespace, name = function.namespace, function._opname
    if wrapped := _WRAPPED.get(f"{namespace}::{name}"):
        return wrapped[0], _size(args[wrapped[1]])
    if namespace not in ("c10d", "_c10d_functional") or name in _SILENT:
        return None
    if namespace == "c10d" and name in _COLLECTIVES:
        kind, position = _COLLECTIVES[name]
        return kind, _size(args[position])
    if namespace == "_c10d_functional" and name in _FUNCTIONAL:
        kind = _FUNCTIONAL[name]
        return kind, _size(result if kind == "all_gather" else args[0])
    raise NotImplementedError(f"The collective {namespace}::{name} is not in communication.py's table.")


def _ranks_of(args: Any) -> int:
    """How many ranks take part in a collective, by its operator's arguments: a group, or a group's name."""
    import torch
    from torch.distributed import ProcessGroup, distributed_c10d

    for arg in args:
        if isinstance(arg, torch.ScriptObject):  # the group comes before its other objects
            return int(ProcessGroup.unbox(arg).size())
    resolve: Any = distributed_c10d._resolve_process_group  # type: ignore[attr-defined]
    name = next((arg for arg in reversed(args) if isinstance(arg, str)), None)
    return int(resolve(name).size()) if name is not None else 0


def _size(value: Any) -> int:
    """Bytes of a tensor, or of all tensors in nested lists."""
    if isinstance(value, list | tuple):
        return sum(_size(item) for item in value)
    return int(value.numel() * value.element_size())


METER = Communication
METRICS = (
    Metric("communication_theory_bytes", "communication volume in theory", BYTES, optional=True),
    Metric("communication_bytes", "communication volume", BYTES, hold="exact", processes=tuple(PROCESSES)),
    Metric("collectives", "collectives/step", WHOLE, hold="exact", optional=True, processes=tuple(PROCESSES)),
    Metric("joined_groups", "barriers and collectives by group", WHOLE, hold="exact", optional=True),
)
