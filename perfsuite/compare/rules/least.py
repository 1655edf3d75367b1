"""Compared part by part: none may become less. What is lost is not made up for by what another part gains."""

from perfsuite.catalog.definitions import Metric
from perfsuite.compare.rules._rule import Rule
from perfsuite.compare.rules.exact import differs
from perfsuite.compare.scope import Scope, line_of
from perfsuite.records.sample import Reading
from perfsuite.records.verdict import Bound, Limit, Line, Move, Status


def compare(metric: Metric, new: Reading, old: Reading, scope: Scope) -> Line:
    """Worse if any part is less, or the value. More is not better: a save that holds each tensor twice has more."""
    moves = {part: new.parts.get(part, 0) - old.parts.get(part, 0) for part in sorted(old.parts | new.parts)}
    least = min([new.value - old.value, *moves.values()])
    status = Status.OK if least >= 0 else Status.REGRESSED
    moved = [Move(part=part, by=by) for part, by in moves.items() if by]
    return line_of(metric, status, old, new, compared=True, limit=Limit(bound=Bound.EQUAL), moves=moved)


RULE = Rule(hold=compare, differs=differs)
