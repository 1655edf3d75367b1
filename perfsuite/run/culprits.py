"""Finds which of several changes made a metric worse: each is tried alone; if none suffices, all but one are tried."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from perfsuite.records.change import Cause, Change, How

Found = Mapping[str, bool | None]  # by metric: whether it is worse; None if unknown
Attempt = Callable[[Sequence[Change]], Found]  # with these changes alone


def culprits(changed: Sequence[Change], worse: Sequence[str], attempt: Attempt) -> list[Cause]:
    """The cause of each of the metrics in ``worse``, which all changes together made worse. Metrics with the same cause
    share one.
    """
    if len(changed) == 1:
        return [Cause(metrics=list(worse), changes=list(changed), how=How.ONLY)]
    known: dict[tuple[Change, ...], Found] = {}

    def found(kept: Sequence[Change], metric: str) -> bool | None:
        if tuple(kept) not in known:
            known[tuple(kept)] = attempt(kept)
        return known[tuple(kept)].get(metric)

    causes: list[Cause] = []
    for metric in worse:
        made = _cause(changed, lambda kept, metric=metric: found(kept, metric))  # type: ignore[misc]
        alike = next((one for one in causes if msgspec.structs.replace(one, metrics=[]) == made), None)
        if alike:
            alike.metrics.append(metric)
        else:
            causes.append(msgspec.structs.replace(made, metrics=[metric]))
    return causes


def _cause(changed: Sequence[Change], worse: Callable[[Sequence[Change]], bool | None]) -> Cause:
    """The cause of one metric."""
    alone = {one: worse([one]) for one in changed}
    if guilty := [one for one in changed if alone[one]]:
        return Cause(changes=guilty, how=How.ALONE)
    needed = [one for one in changed if worse([other for other in changed if other != one]) is False]
    unknown = [one for one in needed if alone[one] is None]
    if len(needed) > 1 and not unknown:
        return Cause(changes=needed, how=How.TOGETHER)
    if needed:
        return Cause(changes=needed, how=How.NEEDED, unknown=unknown or needed)
    return Cause(changes=list(changed), how=How.UNKNOWN)
