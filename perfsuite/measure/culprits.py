"""Finds which of several changes made a metric worse: each is tried alone; if none suffices, all but one are tried.

An attempt takes minutes. So many changes, such as those of a new lock file, are tried in halves first, and only those
of the smallest groups that suffice are tried alone.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from perfsuite.measure.changes import Change, listed

MOST_ALONE = 4  # changes that are not halved first
Found = Mapping[str, bool | None]  # by metric: whether it is worse; None if unknown
Attempt = Callable[[Sequence[Change]], Found]  # with these changes alone
_CAUSED = re.compile(
    r"(?:^|; )(?:([^:;]+): )?caused by (.+?)"
    r"(?: alone|, each alone| together: (?:neither|none) does it alone)?(?=$|; | \()"
)
_CHANGE = re.compile(r"([\w.-]+(?: [\w.-]+)?) (\S+) -> (\S+)")
_AND = re.compile(r", | and ")


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
    groups = _groups(changed, worse)
    alone = {one: worse([one]) for group in groups if len(group) <= MOST_ALONE for one in group}
    if guilty := [one for one in changed if alone.get(one)]:
        return f"caused by {listed(guilty)}" + (", each alone" if len(guilty) > 1 else " alone")
    changed = [one for group in groups for one in group]
    if len(changed) > MOST_ALONE:
        return f"it is not known which of {listed(changed)} caused it"
    needed = [one for one in changed if worse([other for other in changed if other != one]) is False]
    unknown = [one for one in needed if alone[one] is None]
    if len(needed) > 1 and not unknown:
        return f"caused by {listed(needed)} together: {'neither' if len(needed) == 2 else 'none'} does it alone"
    if needed:
        return f"needs {listed(needed)}; it is not known whether {listed(unknown or needed)} causes it alone"
    return f"it is not known which of {listed(changed)} caused it"


def _groups(changed: Sequence[Change], worse: Callable[[Sequence[Change]], bool | None]) -> list[Sequence[Change]]:
    """The smallest groups found by halving that suffice; everything if neither half does."""
    if len(changed) <= MOST_ALONE:
        return [changed]
    middle = len(changed) // 2
    halves = [half for half in (changed[:middle], changed[middle:]) if worse(half)]
    return [group for half in halves for group in _groups(half, worse)] or [changed]


def named_by(sentence: str, metric: str) -> list[tuple[str, str]]:
    """The changes that a sentence of `culprits` names as the cause of a metric, given by its title: ``("transformers",
    "transformers 5.22.0 -> 5.23.0")``. Empty if it names none, or text that is no change.
    """
    for metrics, causes in _CAUSED.findall(sentence):
        if not metrics or metric in (metrics, *_AND.split(metrics)):
            found = [_CHANGE.fullmatch(text) for text in _AND.split(causes)]
            return [(one[1], one[0]) for one in found if one] if all(found) else []
    return []
