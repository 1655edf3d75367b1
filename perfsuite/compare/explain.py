"""The cause of a difference: the part that moved most, with its operators and modules that moved most; for a time, the
phase of a step.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping

from perfsuite.catalog.definitions import Metric
from perfsuite.records.measurement import Measurement
from perfsuite.records.sample import Reading
from perfsuite.records.suspects import AT, EXPOSED, PHASES, expand, layer_of, part_name, with_layers, without_module
from perfsuite.units import show_seconds

NAMED = 3  # at most so many operators
SMALL = 0.1  # of the largest move: smaller moves are not named


def explain(metric: Metric, new: Reading, old: Reading) -> str:
    """``activations +1.94 GiB: aten::softmax in transformer.h.0-11.attn``; empty if the metric has no parts.

    The part moved most in the direction of the value, or grew most if the value is equal. The same holds for its
    operators, of which the evidence names the largest. Layers that moved alike are one entry.
    """
    moves = {name: new.parts.get(name, 0) - old.parts.get(name, 0) for name in sorted(old.parts | new.parts)}
    if not moves:
        return ""
    sign = -1 if new.value < old.value else 1
    parts = sorted(moves, key=lambda name: -sign * moves[name])
    shown = [part for part in parts if sign * moves[part] > 0][: None if metric.every_part else 1] or parts[:1]
    return "; ".join(_explain_part(metric, part, sign, moves[part], new, old) for part in shown)


def _explain_part(metric: Metric, part: str, sign: int, move: int, new: Reading, old: Reading) -> str:
    note = f"{part_name(part)} {_signed(metric, move)}"
    if not new.suspects or not old.suspects:
        return note
    moved = [(suspect, sign * size) for suspect, size in moves(part, new, old).items()]
    moved.sort(key=lambda item: (-item[1], item[0]))
    if not moved or moved[0][1] <= 0:
        return note
    enough = SMALL * moved[0][1]
    named = [(suspect, size) for suspect, size in moved[:NAMED] if size >= enough]
    named += [(suspect, size) for suspect, size in moved[-1:] if size <= -enough]  # replaced by what grew
    if len(named) == 1:
        return f"{note}: {_where(named[0][0])}"
    return f"{note}: {', '.join(f'{_where(suspect)} {_signed(metric, sign * size)}' for suspect, size in named)}"


def explain_time(new: Measurement, old: Measurement) -> str:
    """``backward +12.0 ms``: the phase of a step that grew most, and the exposed communication if it is half of that;
    empty if no phase is known on both sides, or none grew.
    """
    grown = {}
    for name in (*(f"{phase}_seconds" for phase in PHASES), EXPOSED):
        after, before = (measurement.readings.get(name) for measurement in (new, old))
        if after and before:
            grown[name] = after.value - before.value
    waited = grown.pop(EXPOSED, 0)
    name = max(grown, key=lambda name: grown[name], default="")
    if not name or grown[name] <= 0:
        return ""
    note = f"{name.removesuffix('_seconds')} +{show_seconds(grown[name])}"
    return note + (f", exposed communication +{show_seconds(waited)}" if waited > grown[name] / 2 else "")


def moves(part: str, new: Reading, old: Reading) -> dict[str, int]:
    """How much each "operator @ module" in the part moved; layers that moved alike are one.

    A baseline from before modules were recorded is compared by operators alone. If a side keeps only its largest
    entries, an entry that it lacks may have been as large as the smallest that it has.
    """
    by_operator = not any(AT in suspect for suspect in old.suspects)
    prefix = f"{part}: "
    folded = [
        {name: size for name, size in reading.suspects.items() if name.startswith(prefix)} for reading in (new, old)
    ]
    untold = [reading.parts.get(part, 0) - sum(here.values()) for here, reading in zip(folded, (new, old), strict=True)]
    same = set() if by_operator else folded[0].items() & folded[1].items()  # what did not move need not be unfolded
    inside = [expand(dict(side.items() - same) if same else side) for side in folded]
    if by_operator:
        inside = [_by_operator(side) for side in inside]
    most = [min(here, *reading.suspects.values()) for here, reading in zip(untold, (new, old), strict=True)]
    rest = untold[0] if by_operator else 0  # an operator may have more in modules that are too small to be recorded
    layers: dict[tuple[str, int], list[int]] = defaultdict(list)
    moved: dict[str, int] = {}
    for suspect in inside[0] | inside[1]:
        after, before = (here.get(suspect) for here in inside)
        size = max(0, (after or 0) - (most[1] if before is None else before))
        size = size or min(0, (most[0] if after is None else after + rest) - (before or 0))
        pattern, layer = layer_of(suspect.removeprefix(prefix))
        if layer is None:
            moved[pattern] = size
        else:
            layers[pattern, size].append(layer)
    for (pattern, size), indices in layers.items():
        moved[with_layers(pattern, indices)] = size * len(indices)
    return moved


def _by_operator(suspects: Mapping[str, int]) -> dict[str, int]:
    summed: Counter[str] = Counter()
    for suspect, size in suspects.items():
        summed[without_module(suspect)] += size
    return dict(summed)


def _where(suspect: str) -> str:
    return suspect.replace(AT, " in ", 1)


def _signed(metric: Metric, size: int) -> str:
    return f"{'-' if size < 0 else '+'}{metric.show(abs(size))}"
