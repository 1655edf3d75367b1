"""The cause of a difference: the part that moved most, with its operators and modules that moved most; for a time, the
phase of a step.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping

from perfsuite.catalog.definitions import Metric
from perfsuite.records.measurement import Measurement
from perfsuite.records.sample import Reading
from perfsuite.records.suspects import (
    AT,
    EXPOSED,
    LINE,
    PHASES,
    expand,
    layer_of,
    line_of,
    moved_line,
    seconds_by_phase,
    with_layers,
    without_module,
)
from perfsuite.records.verdict import Move
from perfsuite.system.units import FACTS

NAMED = 3  # at most so many operators
SMALL = 0.1  # of the largest move: smaller moves are not named


def explain(metric: Metric, new: Reading, old: Reading) -> list[Move]:
    """The part that moved most, and the operators that moved most in it; none if the metric has no parts.

    The part moved most in the direction of the value, or grew most if the value is equal. The same holds for its
    operators, of which the evidence names the largest. Layers that moved alike are one entry. Of facts, all that came
    and went are named.
    """
    moves = {name: new.parts.get(name, 0) - old.parts.get(name, 0) for name in sorted(old.parts | new.parts)}
    if not moves:
        return []
    if metric.unit == FACTS:
        return [Move(part=part, by=by) for part, by in moves.items() if by]
    sign = -1 if new.value < old.value else 1
    parts = sorted(moves, key=lambda name: -sign * moves[name])
    shown = [part for part in parts if sign * moves[part] > 0][: None if metric.every_part else 1] or parts[:1]
    return [move for part in shown for move in _explain_part(part, sign, moves[part], new, old)]


def _explain_part(part: str, sign: int, by: int, new: Reading, old: Reading) -> list[Move]:
    whole = Move(part=part, line=line_of(new, LINE) if by > 0 else "", by=by)
    if not new.suspects or (not old.suspects and old.parts.get(part)):
        return [whole]
    moved = [(suspect, sign * size) for suspect, size in moves(part, new, old).items()]
    moved.sort(key=lambda item: (-item[1], item[0]))
    if not moved or moved[0][1] <= 0:
        return [whole]
    enough = SMALL * moved[0][1]
    named = [(suspect, size) for suspect, size in moved[:NAMED] if size >= enough]
    named += [(suspect, size) for suspect, size in moved[-1:] if size <= -enough]  # replaced by what grew
    whole = Move(part=part, by=by)
    return [whole, *(_move(f"{part}: {suspect}", sign * size, new, old) for suspect, size in named)]


def _move(suspect: str, by: int, new: Reading, old: Reading) -> Move:
    """What has come is in a line of the new side, and what has gone was in one of the old."""
    line = moved_line(new, old, suspect) if by > 0 else line_of(old, suspect)
    part, _, place = suspect.partition(": ")
    operator, _, module = place.partition(AT)
    return Move(part=part, operator=operator, module=module, line=line, by=by)


def explain_time(new: Measurement, old: Measurement) -> list[Move]:
    """The phase of a step that grew most, in seconds, and the exposed communication if it is half of that; none if no
    phase is known on both sides, or none grew.
    """
    after, before = (seconds_by_phase(measurement.readings) for measurement in (new, old))
    named = (after.keys() ^ before.keys()) - PHASES.keys()  # by the script, on one side alone
    grown = {name: after.get(name, 0.0) - before.get(name, 0.0) for name in after.keys() & before.keys() | named}
    waits = [measurement.readings.get(EXPOSED) for measurement in (new, old)]
    waited = waits[0].value - waits[1].value if waits[0] and waits[1] else 0
    name = max(grown, key=lambda name: grown[name], default="")
    if not name or grown[name] <= 0:
        return []
    slowest = [Move(part=name, by=grown[name])]
    return [*slowest, Move(part=EXPOSED.removesuffix("_seconds"), by=waited)] if waited > grown[name] / 2 else slowest


def moves(part: str, new: Reading, old: Reading) -> dict[str, int]:
    """How much each "operator @ module" in the part moved; layers that moved alike are one.

    A baseline from before modules were recorded is compared by operators alone. If a side keeps only its largest
    entries, an entry that it lacks may have been as large as the smallest that it has.
    """
    by_operator = bool(old.suspects) and not any(AT in suspect for suspect in old.suspects)
    prefix = f"{part}: "
    folded = [
        {name: size for name, size in reading.suspects.items() if name.startswith(prefix)} for reading in (new, old)
    ]
    untold = [reading.parts.get(part, 0) - sum(here.values()) for here, reading in zip(folded, (new, old), strict=True)]
    same = set() if by_operator else folded[0].items() & folded[1].items()  # what did not move need not be unfolded
    inside = [expand(dict(side.items() - same) if same else side) for side in folded]
    if by_operator:
        inside = [_by_operator(side) for side in inside]
    most = [min([here, *reading.suspects.values()]) for here, reading in zip(untold, (new, old), strict=True)]
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
