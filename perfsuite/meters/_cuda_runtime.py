"""A step's calls of CUDA's runtime, from torch's profiler, by function, phase, operator and module.

The profiler's events of one step are a list in the order of time. The runtime's calls ("cudaLaunchKernel") are children
of the operators that made them; a backward's operators are children of the node that autograd runs, whose sequence
number is that of the operator that made it in forward. Phases and modules are marks that this file puts into the list
itself: events of no length in the rank's own thread, while forward and backward run in one thread or in two.
"""

import contextlib
import functools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from perfsuite.rank.memory.whereabouts import watch
from perfsuite.rank.meter import by_part
from perfsuite.rank.session import Session
from perfsuite.records.sample import Reading
from perfsuite.records.suspects import MOST, locate

PHASE, MODULE, END = "perfsuite phase: ", "perfsuite module: ", "perfsuite end"  # names of marks
LAUNCHES = {
    "cudaLaunchKernel", "cudaLaunchKernelExC", "cudaLaunchCooperativeKernel", "cudaGraphLaunch",
    "cuLaunchKernel", "cuLaunchKernelEx",
    "hipLaunchKernel", "hipExtLaunchKernel", "hipModuleLaunchKernel", "hipExtModuleLaunchKernel", "hipGraphLaunch",
}  # fmt: skip
SYNCHRONISATIONS = {  # a copy waits, unlike its "Async" form
    "cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize", "cudaMemcpy", "cudaMemcpy2D",
    "cuCtxSynchronize", "cuStreamSynchronize",
    "hipDeviceSynchronize", "hipStreamSynchronize", "hipEventSynchronize", "hipMemcpy", "hipMemcpyWithStream",
}  # fmt: skip
NODE = "autograd::engine::evaluate_function: "


@dataclass(frozen=True)
class HostEvent:
    """One event of the profiler. ``parents`` are the names and sequence numbers of those around it, innermost first;
    a number below 0 means none.
    """

    name: str
    sequence: int = -1
    parents: tuple[tuple[str, int], ...] = ()


Calls = Counter[tuple[str, str, str, str]]  # by the runtime's function, phase, operator and module


@contextlib.contextmanager
def profiled(session: Session, model: Any, calls: Calls) -> Iterator[None]:
    """Inside, torch's profiler records; then all calls of the runtime are added to ``calls``."""
    from torch.profiler import ProfilerActivity, profile

    mark = functools.partial(_mark, PHASE)
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with profile(activities=activities) as profiler, watch(model, functools.partial(_mark, MODULE), session):
        session.phases.listen(mark)
        try:
            yield
        finally:
            session.phases.forget(mark)
            _mark("", END)  # the profiler synchronizes the device when it stops
    calls.update(runtime_calls(events_of(profiler.events() or [])))


def _mark(kind: str, name: str) -> None:
    from torch.profiler import record_function

    with record_function(kind + name):
        pass


def events_of(events: Iterable[Any]) -> Iterator[HostEvent]:
    """The profiler's events of the host, in the order in which they began."""
    on_host = (event for event in events if event.device_type.name == "CPU")
    for event in sorted(on_host, key=lambda event: event.time_range.start):
        parents, parent = [], event.cpu_parent
        while parent is not None:
            parents.append((parent.name, parent.sequence_nr))
            parent = parent.cpu_parent
        yield HostEvent(event.name, event.sequence_nr, tuple(parents))


def runtime_calls(events: Iterable[HostEvent]) -> Calls:
    """The place of each call of the runtime, up to the end of the step."""
    calls: Calls = Counter()
    phase, module = "batch", ""
    makers: dict[int, str] = {}  # modules by the sequence numbers of the operators that ran in their forward
    last = ""  # a gradient's accumulation has no number: it runs right after the node whose gradient it takes
    for event in events:
        if event.name == END:
            break
        backward = any(name.startswith(NODE) for name, _ in event.parents)
        if event.name.startswith(PHASE):
            phase = event.name.removeprefix(PHASE)
        elif event.name.startswith(MODULE):
            module = event.name.removeprefix(MODULE)
        elif event.name.startswith(NODE):
            last = makers.get(event.sequence, last)
        elif event.name in LAUNCHES or event.name in SYNCHRONISATIONS:
            here = module or (last if backward else "") or f"({phase})"
            calls[event.name, phase, _operator(event.parents), here] += 1
        elif event.sequence >= 0 and (module or not backward):
            makers[event.sequence] = module  # of the operators with one number, the last made the node
    return calls


def _operator(parents: Iterable[tuple[str, int]]) -> str:
    """The outermost operator, inside autograd's node if there is one: ``aten::item``, not its inner operators."""
    name = ""
    for parent, _ in parents:
        if parent.startswith((NODE, "ProfilerStep", "Optimizer.")):
            return name or parent.removeprefix(NODE)
        name = parent
    return name


def reading(calls: Mapping[tuple[str, str, str, str], int], functions: Collection[str]) -> Reading:
    """The number of calls of the functions, by phase."""
    made: Counter[str] = Counter()
    for (function, phase, operator, module), count in calls.items():
        if function in functions:
            made[f"{phase}: {locate(operator or function, module)}"] += count
    return by_part(made, 2 * MOST)
