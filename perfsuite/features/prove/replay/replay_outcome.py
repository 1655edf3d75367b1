"""What became of a regression: caught by the metric that had to move, or not."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from perfsuite.features.prove.replay.regression import Regression
from perfsuite.records.verdict import Line
from perfsuite.run.releases_compared import Seen

LOSS = "loss"


class State(StrEnum):
    """FAILED: what was run did not end as it should. NOT_RUN: it has no workload. WAITING: it has not run yet."""

    CAUGHT = "caught"
    MISSED = "missed"
    FAILED = "failed"
    NOT_RUN = "not run"
    WAITING = "waiting"


BAD = (State.MISSED, State.FAILED)


@dataclass(frozen=True)
class Outcome:
    """``moved`` is the metric that caught it, ``also`` the titles of what else was worse. ``by_losses``: a comparison
    of the first losses alone catches it, too.
    """

    state: State
    reason: str = ""
    moved: Line | None = None
    also: tuple[str, ...] = ()
    by_losses: bool = False
    seconds: float = 0.0


def outcome_of(regression: Regression, records: Sequence[Seen]) -> Outcome:
    """Of the record of its trial. Without a metric, the workload must end with the bad release."""
    if not regression.trials:
        return Outcome(State.NOT_RUN, regression.why_not)
    seen = regression.trials[0].found(records)
    if seen is None:
        return Outcome(State.WAITING)
    good, bad = seen.outcomes
    if good != "fits" or (regression.metric and bad != "fits"):
        return Outcome(State.FAILED, " ".join(filter(None, seen.reasons)), seconds=seen.seconds)
    worse = seen.worse()
    moved = next((line for line in worse if line.metric == regression.metric), None)
    caught = moved is not None if regression.metric else bad != "fits"
    also = tuple(line.title for line in worse if line is not moved)
    state = State.CAUGHT if caught else State.MISSED
    by_losses = bad != "fits" or any(line.metric == LOSS for line in worse)
    return Outcome(state, seen.reasons[1], moved, also, by_losses, seen.seconds)
