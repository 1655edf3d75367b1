"""What releases changed in the cells, which of them did, and the lines in which this is reported.

A cause usually moves one metric in many cells, so a finding joins the effects of one cause on one metric.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from perfsuite.catalog.definitions import Metric
from perfsuite.compare.compare import Comparison
from perfsuite.compare.hurts import Hurt, hurt_of, order_of
from perfsuite.compare.judge import OUTCOME
from perfsuite.records.change import Change
from perfsuite.records.record import Record
from perfsuite.records.verdict import Line, Status
from perfsuite.run.releases_compared import is_better, of_comparison

# Worst first. "differs": the cell computes something else. "runs": it runs now, and did not before.
KINDS = ("fails", "differs", "worse", "better", "runs")
BAD = KINDS[:3]
ALONE, TOGETHER, SUM = "alone", "together only", "adds up"
OPEN = "not narrowed down"  # the limit of time left out an attempt that would tell
ROUGHLY = 0.01  # relative: several effects need not add up more exactly
TIME = "time"  # the key of all timed metrics: one cause slows several
Kept = tuple[Change, ...]


class ReleaseEffect(Record, frozen=True, kw_only=True):
    """One metric of a cell, before and after: a ``line`` of a verdict, with the cell's own kind of effect. ``message``
    is the reason of a failure.
    """

    cell: str
    kind: str
    line: Line
    message: str = ""

    @property
    def metric(self) -> str:
        return self.line.metric

    @property
    def title(self) -> str:
        return self.line.title

    @property
    def share(self) -> float | None:
        """The relative difference; None from nothing to something."""
        return self.line.change

    @property
    def small(self) -> bool:
        """Whether it differs by less than matters."""
        return self.line.status == Status.IMMATERIAL

    @property
    def bad(self) -> bool:
        return self.kind in BAD

    @property
    def size(self) -> float:
        return math.inf if self.share is None else abs(self.share)


@dataclass(frozen=True)
class Blamed:
    """An effect and the changes that cause it: one ALONE, several TOGETHER, or several that each add a little. If it is
    OPEN which, all of them.
    """

    effect: ReleaseEffect
    by: Kept
    how: str


class Finding(Record, frozen=True, kw_only=True):
    """The effects of one cause on one metric, the largest first."""

    changes: list[Change]
    how: str
    effects: list[ReleaseEffect]

    @property
    def libraries(self) -> list[str]:
        """The names of its changes."""
        return [change.name for change in self.changes]

    @property
    def worst(self) -> ReleaseEffect:
        return self.effects[0]

    @property
    def cells(self) -> list[str]:
        return list(dict.fromkeys(effect.cell for effect in self.effects))


def effects_of(found: Comparison, metrics: Iterable[Metric]) -> list[ReleaseEffect]:
    """Every difference of a comparison; none if neither side fits."""
    cell, known = found.b.cell, {metric.name: metric for metric in metrics}
    seen = of_comparison(found, cell, ("", ""), 0.0)
    old, new = seen.outcomes
    if (old == "fits") != (new == "fits"):
        kind, message = ("fails", seen.reasons[1]) if old == "fits" else ("runs", seen.reasons[0])
        status = Status.REGRESSED if old == "fits" else Status.IMPROVED
        line = Line(metric=OUTCOME, title=OUTCOME, status=status, old=old, new=new)
        return [ReleaseEffect(cell=cell, kind=kind, line=line, message=message)]
    effects = []
    for line in seen.moved:
        differs = known[line.metric].worse == "different" or None in (line.old, line.new)
        kind = "better" if is_better(line) else "differs" if differs else "worse"
        effects.append(ReleaseEffect(cell=cell, kind=kind, line=line))
    return effects


def blame(
    changes: Sequence[Change],
    alone: Mapping[Change, Sequence[ReleaseEffect]],
    together: Sequence[ReleaseEffect],
    needed: Callable[[ReleaseEffect], Kept | None],
) -> list[Blamed]:
    """The causes of all effects on one cell. ``alone`` lacks the changes that were not tried. ``needed`` finds the
    changes without which an effect does not appear, None if that was not tried; it is asked for what no change causes
    alone.
    """
    found = [Blamed(effect, (change,), ALONE) for change in changes for effect in alone.get(change, ())]
    if len(changes) == 1:
        return found
    for effect in together:
        movers = [one for one in found if one.how == ALONE and same(one.effect, effect)]
        if _explained(effect, [mover.effect for mover in movers]):
            if not effect.small and all(mover.effect.small for mover in movers):
                found = [one for one in found if one not in movers]
                found.append(Blamed(effect, tuple(mover.by[0] for mover in movers), SUM))
        elif len(alone) < len(changes):
            found.append(Blamed(effect, tuple(changes), OPEN))
        elif effect.small:  # it is worth no further launches
            found.append(Blamed(effect, tuple(changes), TOGETHER))
        else:
            by = needed(effect)
            found.append(Blamed(effect, by or tuple(changes), OPEN if by is None else TOGETHER))
    return found


def same(one: ReleaseEffect, other: ReleaseEffect) -> bool:
    """Whether both move the same metric the same way."""
    return (one.metric, one.bad) == (other.metric, other.bad)


def _explained(together: ReleaseEffect, alone: Sequence[ReleaseEffect]) -> bool:
    """Whether the changes' own effects are together as large, up to ROUGHLY. Those on numbers that only differ do not
    add up: one is enough.
    """
    if not alone or together.kind not in ("worse", "better"):
        return bool(alone)
    shares = [one.share for one in [*alone, together]]
    if None in shares:
        return any(one.share is None for one in alone)
    *parts, whole = [share for share in shares if share is not None]
    expected = max(abs(sum(parts)), abs(math.prod(1 + part for part in parts) - 1))
    return abs(whole) < expected + ROUGHLY


def findings(blamed: Iterable[Blamed], timed: Iterable[str]) -> list[Finding]:
    """One for each cause and metric, by its worst effect: failures, other results, worse, better; small ones last. Of a
    kind, what hurts most is first.
    """
    groups: dict[tuple[object, ...], list[Blamed]] = {}
    times = set(timed)
    for one in blamed:
        effect = one.effect
        metric = effect.message if effect.metric == OUTCOME else TIME if effect.metric in times else effect.metric
        groups.setdefault((one.by, one.how, effect.kind, effect.small, metric), []).append(one)
    made = [_finding(group) for group in groups.values()]
    return sorted(made, key=lambda one: (one.worst.small, KINDS.index(one.worst.kind), order_of(one.worst.line)))


def folded_below(made: Sequence[Finding]) -> list[Finding]:
    """The counters that a release moved together with the numbers of a training: they are the work of another one."""
    other = {
        change
        for one in made
        for change in one.changes
        if one.worst.kind == "differs" and not one.worst.small and hurt_of(one.worst.line) == Hurt.NUMBERS
    }
    counters = [one for one in made if one.worst.metric != OUTCOME and hurt_of(one.worst.line) == Hurt.COUNTERS]
    return [counter for counter in counters if other.intersection(counter.changes)]


def _finding(group: Sequence[Blamed]) -> Finding:
    return Finding(
        changes=list(group[0].by),
        how=group[0].how,
        effects=sorted((one.effect for one in group), key=lambda effect: -effect.size),
    )
