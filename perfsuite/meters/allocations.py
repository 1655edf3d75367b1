"""Allocations: how many tensors a step allocates on its devices, by phase; the evidence names the operators.

They are those of the last traced step, in the log of the peak and its anatomy: on a CPU the counting allocator's, on
CUDA the caching allocator's history, which names no operators. Allocations for the batch are left out, and so are those
of gloo's threads, whose phase would be random.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from perfsuite.catalog.definitions import OF_A_STEP, Metric
from perfsuite.catalog.processes import IN_TORCH
from perfsuite.rank.memory.anatomy import Mark
from perfsuite.rank.meter import Meter
from perfsuite.records.sample import Reading
from perfsuite.records.suspects import MOST, fold
from perfsuite.system.units import WHOLE

PHASES = {"forward": "forward", "backward": "backward", "optimizer": "optimizer", "end": "optimizer"}  # by their marks


class Allocations(Meter):
    """Reads the memory meter's log."""

    processes = IN_TORCH

    def readings(self) -> dict[str, Reading]:
        memory = self.session.memory
        assert memory is not None
        counts = [count_allocations(log, memory.marks) for log in memory.logs]
        parts, suspects = Counter[str](), Counter[str]()
        for count in counts:
            parts.update(count.parts)
            suspects.update(count.suspects)
        return {"allocations": Reading(value=parts.total(), parts=dict(parts), suspects=dict(suspects))}


def count_allocations(events: Iterable[tuple[int, int, str]], marks: Mapping[int, Mark]) -> Reading:
    """The allocations of the last whole step of a log, as rank/memory/anatomy.py describes it."""
    steps: list[Counter[tuple[str, str]]] = [Counter()]
    phase = ""
    for address, size, operation in events:
        if address == -1:
            phase = PHASES.get(marks[size].phase, "")
            if marks[size].phase == "batch":
                steps.append(Counter())
        elif size > 0 and phase:
            steps[-1][phase, operation] += 1
    last = next((step for step in reversed(steps) if step), Counter())
    if any(operation for _, operation in last):  # an allocator that names operators names all of the rank's own thread
        last = Counter({(phase, operation): count for (phase, operation), count in last.items() if operation})
    phases: Counter[str] = Counter()
    for (phase, _), count in last.items():
        phases[phase] += count
    prefix = "autograd::engine::evaluate_function: "
    suspects = {f"{phase}: {name.removeprefix(prefix)}": count for (phase, name), count in last.items() if name}
    return Reading(value=sum(phases.values()), parts=dict(phases), suspects=fold(suspects, 2 * MOST))


METER = Allocations
METRICS = (Metric("allocations", "allocations/step", WHOLE, hold="exact", optional=True, materiality=OF_A_STEP),)
