"""What every recorded step leaves alive: the places that leak, if more and more stays alive.

A step also leaves what the next one replaces, such as gradients, and the first ones leave what is made once, such as
the optimizer's state. Neither is left by the same place in every step for good, so such places are not listed.
"""

import bisect
from collections import Counter
from collections.abc import Mapping, Sequence

from perfsuite.rank.memory.anatomy import Mark, changes, whole_steps
from perfsuite.records.suspects import AT, fold

LEAST = 2  # steps: one shows nothing
MOST = 3  # places that are named
_NODE = "autograd::engine::evaluate_function: "  # backward's operators are named by their node


def leftovers(events: Sequence[tuple[int, int, str]], marks: Mapping[int, Mark]) -> dict[str, int]:
    """The bytes that each step leaves at least, by "operator @ module"; by phase if the log names no operators. Equal
    layers are one entry. Empty if no place leaves something in every step.
    """
    events = whole_steps(events, marks)
    begins = [at for at, (address, size, _) in enumerate(events) if address == -1 and marks[size].phase == "batch"]
    if len(begins) < LEAST:
        return {}
    alive: dict[int, tuple[int, str, int]] = {}
    for change in changes(events, marks):
        if change.size > 0:
            place = change.block.operation.removeprefix(_NODE) or f"({change.phase})"
            alive[id(change.block)] = (bisect.bisect(begins, change.index), place, change.size)
        else:
            del alive[id(change.block)]
    steps: list[Counter[str]] = [Counter() for _ in range(len(begins) + 1)]
    for step, place, size in alive.values():
        steps[step][place] += size
    _, first, *others = steps  # before the first step, the model was built
    least = {place: min(size, *(step[place] for step in others)) for place, size in first.items()}
    return fold({place: size for place, size in least.items() if size}, None)


def leftovers_text(left: Mapping[str, int]) -> str:
    """``Each of those leaves 64 bytes of aten::mul in transformer.h.0-3.mlp.``, the largest first."""
    known = [f"{size:,} bytes of {place.replace(AT, ' in ')}" for place, size in left.items()]
    if not known:
        return "No operator leaves bytes in each of those, so the leak is later or rarer."
    more = [f"{len(known) - MOST:,} more"] if len(known) > MOST else []
    *names, last = known[:MOST] + more
    return f"Each of those leaves {', '.join(names)}{' and ' if names else ''}{last}."
