"""What became of a regression: caught by the metric that had to move, with its good neighbours quiet, or not."""

from collections.abc import Sequence
from dataclasses import dataclass

from perfsuite.features.prove.replay.regression import Regression
from perfsuite.records.verdict import Line
from perfsuite.run.releases_compared import Seen, find


@dataclass(frozen=True)
class Outcome:
    """``state`` is "caught", "missed", "false catch", "failed" (what was run did not end as it should, for ``reason``),
    "not run" (``reason`` says why it never is) or "waiting". ``moved`` is the metric, ``also`` what else was worse.
    """

    state: str
    reason: str = ""
    moved: Line | None = None
    also: tuple[str, ...] = ()
    quiet: bool | None = None  # the metric did not move between the neighbours; None: there are none yet
    neighbours_also: tuple[str, ...] = ()
    seconds: float = 0.0


def outcome_of(regression: Regression, records: Sequence[Seen]) -> Outcome:
    """Of the records of its comparisons."""
    if regression.why_not:
        return Outcome("not run", regression.why_not)
    seen = [find(records, regression.cell, pair) for pair in regression.comparisons]
    shown, neighbours = seen[0], seen[1] if len(seen) > 1 else None
    if shown is None or (len(seen) > 1 and neighbours is None):
        return Outcome("waiting")
    seconds = sum(one.seconds for one in seen if one)
    if not regression.moves:
        return _ends(shown, neighbours, seconds)
    for one in filter(None, seen):
        if one.outcomes != ("fits", "fits"):
            return Outcome("failed", " ".join(filter(None, one.reasons)), seconds=seconds)
    moved = next((one for one in shown.worse() if _counts(one, regression)), None)
    noise = neighbours.worse() if neighbours else []
    quiet = None if neighbours is None else not any(_counts(one, regression) for one in noise)
    state = "missed" if moved is None else "caught" if quiet is not False else "false catch"
    also = tuple(one.title for one in shown.worse() if one is not moved)
    return Outcome(state, "", moved, also, quiet, tuple(one.title for one in noise), seconds)


def _counts(moved: Line, regression: Regression) -> bool:
    return moved.metric == regression.moves and (not regression.least or abs(moved.change or 0) >= regression.least)


def _ends(shown: Seen, neighbours: Seen | None, seconds: float) -> Outcome:
    """Of a regression that ends the cell."""
    if shown.outcomes[0] != "fits":
        return Outcome("failed", shown.reasons[0], seconds=seconds)
    quiet = None if neighbours is None else neighbours.outcomes == ("fits", "fits")
    state = "missed" if shown.outcomes[1] == "fits" else "false catch" if quiet is False else "caught"
    noise = tuple(one.title for one in neighbours.worse()) if neighbours else ()
    return Outcome(state, shown.reasons[1], None, (), quiet, noise, seconds)
