"""Finds which of several changes made a metric worse: each is tried alone; if none suffices, all but one are tried."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from perfsuite.measure.changes import Change, listed

Found = Mapping[str, bool | None]  # by metric: whether it is worse; None if unknown
Attempt = Callable[[Sequence[Change]], Found]  # with these changes alone


def culprits(changed: Sequence[Change], worse: Sequence[str], attempt: Attempt) -> str:
    """The sentence that names them, for all metrics at once if they have the same. All changes together made each of
    the metrics in ``worse`` worse.
    """
    if len(changed) == 1:
        return f"caused by {changed[0]}"
    known: dict[tuple[Change, ...], Found] = {}

    def found(kept: Sequence[Change], metric: str) -> bool | None:
        if tuple(kept) not in known:
            known[tuple(kept)] = attempt(kept)
        return known[tuple(kept)].get(metric)

    sentences: dict[str, list[str]] = defaultdict(list)
    for metric in worse:
        sentences[_culprits(changed, lambda kept, metric=metric: found(kept, metric))].append(metric)  # type: ignore[misc]
    if len(sentences) == 1:
        return next(iter(sentences))
    return "; ".join(f"{listed(metrics)}: {sentence}" for sentence, metrics in sentences.items())


def _culprits(changed: Sequence[Change], worse: Callable[[Sequence[Change]], bool | None]) -> str:
    """The sentence for one metric."""
    alone = {one: worse([one]) for one in changed}
    if guilty := [one for one in changed if alone[one]]:
        return f"caused by {listed(guilty)}" + (", each alone" if len(guilty) > 1 else " alone")
    needed = [one for one in changed if worse([other for other in changed if other != one]) is False]
    unknown = [one for one in needed if alone[one] is None]
    if len(needed) > 1 and not unknown:
        return f"caused by {listed(needed)} together: {'neither' if len(needed) == 2 else 'none'} does it alone"
    if needed:
        return f"needs {listed(needed)}; it is not known whether {listed(unknown or needed)} causes it alone"
    return f"it is not known which of {listed(changed)} caused it"
