"""Finds which of several changes made a metric worse: each is tried alone; if none suffices, all but one are tried.

An attempt takes minutes. So many changes, such as those of a new lock file, are tried in halves first, and only those
of the smallest groups that suffice are tried alone.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from perfsuite.records.change import Cause, Change, How

MOST_ALONE = 4  # changes that are not halved first
Found = Mapping[str, bool | None]  # by metric: whether it is worse; None if unknown
Attempt = Callable[[Sequence[Change]], Found]  # with these changes alone


def culprits(changed: Sequence[Change], worse: Sequence[str], attempt: Attempt) -> list[Cause]:
    """The cause of each of the metrics in ``worse``, which all changes together made worse. Metrics with the same cause
    share one.
    """
    if len(changed) == 1:
        return [Cause(metrics=list(worse), changes=list(changed), how=How.ONLY)]
    known: dict[tuple[Change, ...], Found] = {}

    def is_worse(kept: Sequence[Change], metric: str) -> bool | None:
        if tuple(kept) not in known:
            known[tuple(kept)] = attempt(kept)
        return known[tuple(kept)].get(metric)

    causes: list[Cause] = []
    for metric in worse:
        made = _cause(changed, lambda kept, metric=metric: is_worse(kept, metric))  # type: ignore[misc]
        alike = next((cause for cause in causes if msgspec.structs.replace(cause, metrics=[]) == made), None)
        if alike:
            alike.metrics.append(metric)
        else:
            causes.append(msgspec.structs.replace(made, metrics=[metric]))
    return causes


def _cause(changed: Sequence[Change], worse: Callable[[Sequence[Change]], bool | None]) -> Cause:
    """The cause of one metric."""
    groups = _groups(changed, worse)
    alone = {one: worse([one]) for group in groups if len(group) <= MOST_ALONE for one in group}
    if guilty := [change for change in changed if alone.get(change)]:
        return Cause(changes=guilty, how=How.ALONE)
    changed = [one for group in groups for one in group]
    if len(changed) > MOST_ALONE:
        return Cause(changes=list(changed), how=How.UNKNOWN)
    needed = [change for change in changed if worse([other for other in changed if other != change]) is False]
    unknown = [change for change in needed if alone[change] is None]
    if len(needed) > 1 and not unknown:
        return Cause(changes=needed, how=How.TOGETHER)
    if needed:
        return Cause(changes=needed, how=How.NEEDED, unknown=unknown or needed)
    return Cause(changes=list(changed), how=How.UNKNOWN)


def _groups(changed: Sequence[Change], worse: Callable[[Sequence[Change]], bool | None]) -> list[Sequence[Change]]:
    """The smallest groups found by halving that suffice; everything if neither half does."""
    if len(changed) <= MOST_ALONE:
        return [changed]
    middle = len(changed) // 2
    halves = [half for half in (changed[:middle], changed[middle:]) if worse(half)]
    return [group for half in halves for group in _groups(half, worse)] or [changed]
