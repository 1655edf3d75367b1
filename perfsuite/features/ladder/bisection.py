"""Finds the release, or the pair of releases, that made a change, with fresh runs of log2(n) rungs.

Some changes need two: a release of the ladder's library and one of a library that it pins. If the change is absent
with an older release of the other library, that one is bisected too, at the ladder's first bad release. Then all four
corners are run: it is the pair only if neither release alone shows the change. Each rung is run once for the search;
the answer is confirmed as an alarm is (confirm.py).

If the ends differ by more than one change, the larger one is found, and the verdict says where the others are.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec
from packaging.version import Version

from perfsuite.environments import index, lockfile
from perfsuite.errors import PerfsuiteError, UsageError
from perfsuite.features.ladder import asv_results as results
from perfsuite.features.ladder import confirm
from perfsuite.features.ladder.asv_results import Key, show
from perfsuite.features.ladder.bench import Grid, Judge, Number, RungBench, RungRun
from perfsuite.features.ladder.ladder import Ladder
from perfsuite.features.ladder.series_steps import SeriesStep
from perfsuite.features.ladder.story import show_move
from perfsuite.records.record import Record

P = TypeVar("P")
EDGES = ((0, 1), (0, 2), (1, 3), (2, 3))  # corners of a pair between which one release differs


class FoundChange(Record, frozen=True, kw_only=True):
    """A release: ``good`` is the last without the change, ``bad`` the first with it; ``untold`` between them are
    undecided. ``confirmed``: it was the same in new runs; None if nothing confirms it, a time of asv's own benchmark.
    """

    library: str
    good: str
    bad: str
    untold: tuple[str, ...] = ()
    confirmed: bool | None = False


class BisectionAnswer(Record, frozen=True, kw_only=True):
    """The answer for one series. ``corners`` are the four of a pair: (low, low), (high, low), (low, high), (high, high)
    of the ladder's library and the other. ``unpaired`` says why it is unknown whether ``found`` alone causes it, if
    that was asked.
    """

    format: int = 1
    series: str
    unit: str
    found: FoundChange
    other: FoundChange | None = None
    corners: tuple[RungRun, ...] = ()
    verdict: str
    seen: tuple[RungRun, ...]
    unpaired: str = ""

    @property
    def confirmed(self) -> bool | None:
        """Whether new runs confirmed all parts of the answer; None if they can neither confirm nor refute it."""
        parts = [found.confirmed for found in (self.found, self.other) if found]
        return False if False in parts else None if None in parts else True


@dataclass(frozen=True)
class Other:
    """The other library that a ladder pins, and its releases from an older one up to the pinned one."""

    name: str
    releases: tuple[index.Release, ...]


def other_held(ladder: Ladder, text: str) -> Other:
    """The other library of ``--hold NAME==V``. Raises UsageError if the ladder does not fix it, or not at a newer
    release.
    """
    name, low = lockfile.pinned(text)
    held = dict(lockfile.pinned(held) for held in ladder.definition.hold)
    if name not in held:
        holds = f"no {name}, but {', '.join(held)}" if held else "nothing"
        raise UsageError(f"--hold {text}: the ladder pins {holds}.")
    high = held[name]
    if Version(low) >= Version(high):
        raise UsageError(f"--hold {text}: give an older release than {name} {high}, which the ladder pins.")
    return Other(name, tuple(index.chosen(name, low, high, [], (), ladder.definition.dates)))


def first_bad(points: Sequence[P], bad: Callable[[P], bool | None]) -> tuple[P, P, list[P]]:
    """The last good and the first bad of ``points``, whose first is good and whose last is bad, by bisection; and those
    between the two that are undecided.
    """
    low, high = 0, len(points) - 1
    untold: set[int] = set()
    while True:
        open_ = [at for at in range(low + 1, high) if at not in untold]
        if not open_:
            return points[low], points[high], [points[at] for at in range(low + 1, high)]
        middle = min(open_, key=lambda at: abs(2 * at - low - high))
        side = bad(points[middle])
        if side is None:
            untold.add(middle)
        elif side:
            high = middle
        else:
            low = middle


def bisect(bench: RungBench, key: Key, good: str, bad: str, other: Other | None = None) -> BisectionAnswer:
    """Find the release of one series between two rungs, and with ``other`` whether it causes the change alone.

    Raises UsageError if the ends do not differ, or if an end cannot run.
    """
    names = [rung.name for rung in bench.ladder.rungs]
    between = names[names.index(good) : names.index(bad) + 1]
    if len(between) < 2:
        raise UsageError(f"--from {good} is not below --to {bad}.")
    library, benchmark = bench.ladder.definition.library, results.benchmarks(bench.folder, bench.ladder)[key[0]]
    unit, noisy = benchmark.unit, benchmark.noisy
    judge = Judge(bench.value(good, key), bench.value(bad, key), noisy)
    if not judge.differs():
        raise UsageError(
            f"{show(key)} is {judge.good} at {library} {good} and {judge.bad} at {bad}: no change to find."
        )
    low, high, untold = first_bad(between, lambda name: bench.side(name, key, judge))
    step = SeriesStep(key, noisy, low, high, bench.value(low, key), bench.value(high, key))
    confirmed = _confirmed(bench, judge, key, [(low, high)])
    found = FoundChange(library=library, good=low, bad=high, untold=tuple(untold), confirmed=confirmed)
    verdict = f"{library} {high}" + ("" if not untold else f", or one of {', '.join(untold)}, which are undecided")
    more = _more(judge, step, unit)
    answer = BisectionAnswer(
        series=show(key), unit=unit, found=found, verdict=verdict + more, seen=bench.seen(key, judge)
    )
    if other is None:
        return answer
    if more:
        judge = Judge(step.old, step.new, noisy)
    try:
        paired = _pair(bench, key, judge, answer, other)
    except PerfsuiteError as error:
        return msgspec.structs.replace(answer, unpaired=str(error))
    return msgspec.structs.replace(paired, verdict=paired.verdict + more)


def _confirmed(bench: RungBench, judge: Judge, key: Key, edges: Sequence[tuple[str, str]]) -> bool | None:
    """Whether new runs confirm that the series changes between the rungs of each edge; None if nothing can."""
    if any(bench.side(rung, key, judge) is None for edge in edges for rung in edge):
        return False
    steps = [
        SeriesStep(key, judge.noisy, low, high, bench.value(low, key), bench.value(high, key)) for low, high in edges
    ]
    if not all(confirm.is_checkable(bench.ladder, step) for step in steps):
        return None
    confirm.confirm(bench.folder, bench.ladder, steps, bench.ran)
    checks = [confirm.known(bench.folder, step) for step in steps]
    return all(check is not None and check.confirmed for check in checks)


def _more(judge: Judge, step: SeriesStep, unit: str) -> str:
    """The other changes between the ends, and how to find them; empty if there are none."""
    others = []
    if judge.unlike(step.old, judge.good):
        others.append((judge.good, step.old, f"below: bisect again with --to {step.old_rung}"))
    if judge.unlike(step.new, judge.bad):
        others.append((step.new, judge.bad, f"above: bisect again with --from {step.new_rung}"))
    if not others:
        return ""

    def move(old: Number, new: Number) -> str:
        return f"from {show_move(old, new, unit, ' to ')}"

    return "; ".join([f", {move(step.old, step.new)}", *(f"{move(old, new)} is {where}" for old, new, where in others)])


def _pair(bench: RungBench, key: Key, judge: Judge, answer: BisectionAnswer, other: Other) -> BisectionAnswer:
    """Whether the change also needs a release of the other library, and which."""
    found, name = answer.found, other.name
    grid = Grid(bench, name, {release.version: release.moment for release in other.releases})
    versions = [release.version for release in other.releases]
    bench = grid.bench
    oldest = grid.rung(found.bad, versions[0])
    if judge.bad_at(bench.value(oldest, key)):
        below = grid.rung(found.good, versions[0])
        again = found.confirmed and _confirmed(bench, judge, key, [(below, oldest)])
        return msgspec.structs.replace(
            answer,
            found=msgspec.structs.replace(found, confirmed=again),
            verdict=f"{found.library} {found.bad} alone: the change is also there with {name} {versions[0]}",
            seen=answer.seen + bench.seen(key, judge),
        )
    lower, upper, untold = first_bad(versions, lambda version: bench.side(grid.rung(found.bad, version), key, judge))
    places = [(found.good, lower), (found.bad, lower), (found.good, upper), (found.bad, upper)]
    rungs = [grid.rung(*place) for place in places]
    corners = tuple(bench.at(rung, key, judge) for rung in rungs)
    change = FoundChange(library=name, good=lower, bad=upper, untold=tuple(untold))
    cause = _cause(found, change, corners, judge.noisy)
    edges = [(rungs[low], rungs[high]) for low, high in EDGES if corners[low].bad != corners[high].bad]
    unclear = f"the four corners of {found.library} {found.bad} and {name} {upper} are contradictory or undecided"
    again = bool(cause) and _confirmed(bench, judge, key, edges)
    return msgspec.structs.replace(
        answer,
        other=msgspec.structs.replace(change, confirmed=again),
        corners=corners,
        verdict=cause or f"unknown: {unclear}",
        seen=answer.seen + bench.seen(key, judge),
    )


def _cause(found: FoundChange, other: FoundChange, corners: Sequence[RungRun], noisy: bool = False) -> str:
    """The conclusion from four corners; empty if there is none, for example if an exact one is like neither end."""
    both = f"{found.library} ≥ {found.bad} together with {other.library} ≥ {other.bad}"
    alone = "alone: the change is also there with"
    known: dict[tuple[bool | None, ...], str] = {
        (False, False, False, True): f"{both}: neither alone changes it",
        (False, False, True, True): f"{other.library} {other.bad} {alone} {found.library} {found.good}",
        (False, True, False, True): f"{found.library} {found.bad} {alone} {other.library} {other.good}",
    }
    return known.get(tuple(None if corner.between and not noisy else corner.bad for corner in corners), "")
