"""Whose fault a change is: the release with which it came, found by fresh runs of log2(n) rungs; and the pair.

Some changes need two: a release of the ladder's library and one of what it holds. Where the change is not there with an
older release of the other library, that one is bisected too, at the ladder's first bad release, and all four corners
are run: only if neither release alone shows the change is it the pair.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec
from packaging.version import Version

from perfsuite.errors import UsageError
from perfsuite.history import confirm, index, locks, results
from perfsuite.history.bench import Bench, Grid, Judge, Seen
from perfsuite.history.results import Key, show
from perfsuite.history.steps import Step
from perfsuite.records import Record

P = TypeVar("P")


class Found(Record, frozen=True, kw_only=True):
    """A release: ``good`` is the last without the change, ``bad`` the first with it, ``untold`` between them cannot
    tell. ``confirmed``: both were run again, several times.
    """

    library: str
    good: str
    bad: str
    untold: tuple[str, ...] = ()
    confirmed: bool = False


class Answer(Record, frozen=True, kw_only=True):
    """What was found for one series. ``corners`` are the four of a pair: (low, low), (high, low), (low, high), (high,
    high) of the ladder's library and the other. Format 1: 2026-11, first.
    """

    format: int = 1
    series: str
    unit: str
    found: Found
    other: Found | None = None
    corners: tuple[Seen, ...] = ()
    verdict: str
    seen: tuple[Seen, ...]


def first_bad(points: Sequence[P], bad: Callable[[P], bool | None]) -> tuple[P, P, list[P]]:
    """The last good and the first bad of ``points``, whose first is good and whose last is bad, by halving; and those
    between the two that cannot tell.
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


def bisect(bench: Bench, key: Key, good: str, bad: str, rounds: int, other: str = "") -> Answer:
    """Find the release of one series between two rungs, and with ``other==V`` whether it is that release alone.

    Raises UsageError where the ends do not differ, and where an end cannot be run.
    """
    names = [rung.name for rung in bench.ladder.rungs]
    between = names[names.index(good) : names.index(bad) + 1]
    if len(between) < 2:
        raise UsageError(f"--good {good} does not stand below --bad {bad}.")
    library, benchmark = bench.ladder.definition.library, results.benchmarks(bench.folder, bench.ladder)[key[0]]
    unit, noisy = benchmark.unit, benchmark.noisy
    judge = Judge(bench.value(good, key), bench.value(bad, key))
    if not judge.differs(noisy):
        raise UsageError(
            f"{show(key)} is {judge.good} at {library} {good} and {judge.bad} at {bad}: no change to find."
        )
    low, high, untold = first_bad(between, lambda name: bench.side(name, key, judge))
    step = Step(key, noisy, low, high, bench.value(low, key), bench.value(high, key))
    confirm.confirm(bench.folder, bench.ladder, [step], rounds, bench.ran)
    check = confirm.known(bench.folder, step)
    found = Found(
        library=library, good=low, bad=high, untold=tuple(untold), confirmed=check is not None and check.confirmed
    )
    seen = bench.seen(key, judge)
    verdict = f"{library} {high}" + ("" if not untold else f", or one of {', '.join(untold)}, which cannot tell")
    if not other:
        return Answer(series=show(key), unit=unit, found=found, verdict=verdict, seen=seen)
    return _pair(
        bench, key, judge, found, other, Answer(series=show(key), unit=unit, found=found, verdict="", seen=seen)
    )


def _pair(bench: Bench, key: Key, judge: Judge, found: Found, other: str, answer: Answer) -> Answer:
    """Whether the change needs a release of the other library too, and which."""
    name, low = locks.pinned(other)
    held = dict(locks.pinned(text) for text in bench.ladder.definition.hold)
    if name not in held:
        raise UsageError(f"--with {other}: the ladder holds no {name}, but {', '.join(held) or 'nothing'}.")
    high = held[name]
    if Version(low) >= Version(high):
        raise UsageError(f"--with {other}: give an older release than {name} {high}, which the ladder holds.")
    releases = index.chosen(name, low, high, [])
    grid = Grid(bench, name, {release.version: release.date for release in releases})
    versions = [release.version for release in releases]

    if judge.bad_at(grid.bench.value(grid.rung(found.bad, versions[0]), key)):
        verdict = f"{found.library} {found.bad} alone: it is there with {name} {versions[0]} too"
        return msgspec.structs.replace(answer, verdict=verdict, seen=answer.seen + grid.bench.seen(key, judge))
    lower, upper, untold = first_bad(versions, lambda other: grid.bench.side(grid.rung(found.bad, other), key, judge))
    places = [(found.good, lower), (found.bad, lower), (found.good, upper), (found.bad, upper)]
    corners = tuple(grid.bench.at(grid.rung(*place), key, judge) for place in places)
    pair = [corner.bad for corner in corners] == [False, False, False, True]
    both = f"{found.library} ≥ {found.bad} together with {name} ≥ {upper}"
    verdict = f"{both}: neither alone changes it" if pair else _alone(found, name, lower, upper, corners)
    return msgspec.structs.replace(
        answer,
        other=Found(library=name, good=lower, bad=upper, untold=tuple(untold), confirmed=pair),
        corners=corners,
        verdict=verdict,
        seen=answer.seen + grid.bench.seen(key, judge),
    )


def _alone(found: Found, name: str, lower: str, upper: str, corners: Sequence[Seen]) -> str:
    """What four corners say that are not those of a pair."""
    if corners[2].bad:
        return f"{name} {upper} alone: it is there with {found.library} {found.good} too"
    if corners[1].bad:
        return f"{found.library} {found.bad} alone: it is there with {name} {lower} too"
    return f"not to be told: the four corners of {found.library} {found.bad} and {name} {upper} contradict each other"
