"""Whose fault a change is: the release with which it came, found by fresh runs of log2(n) rungs; and the pair.

Some changes need two: a release of the ladder's library and one of what it holds. Where the change is not there with an
older release of the other library, that one is bisected too, at the ladder's first bad release, and all four corners
are run: only if neither release alone shows the change is it the pair.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import msgspec
from packaging.version import Version

from perfsuite.errors import UsageError
from perfsuite.history import asv, confirm, index, ladder, locks, results
from perfsuite.history.asv import THRESHOLD
from perfsuite.history.ladder import Ladder, Rung
from perfsuite.history.results import Key, Run, show
from perfsuite.history.steps import Step, ratio
from perfsuite.records import Record

P = TypeVar("P")
Number = float | None  # None: the benchmark fails


class Seen(Record, frozen=True, kw_only=True):
    """A fresh run on the way: the releases, what it gave, and which end of the ladder that is like."""

    releases: tuple[str, ...]
    value: Number
    bad: bool | None


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


@dataclass
class Bench:
    """Fresh runs of a ladder's rungs, each at most once."""

    folder: Path
    ladder: Ladder
    keys: Sequence[Key]
    ran: Callable[[Run], None]
    known: dict[str, Run] = field(default_factory=dict)

    def value(self, rung: str, key: Key) -> Number:
        """What the rung gives. Raises UsageError where it cannot be run."""
        if rung not in self.known:
            run = asv.run(self.folder, self.ladder, self.ladder.rung(rung), fresh=True, only=self.keys)
            self.ran(run)
            self.known[rung] = run
        found = self.known[rung].values.get(key[0], {}).get(key[1])
        if found is None:
            raise UsageError(f"{self.ladder.definition.library} {rung} cannot be run: {self.known[rung].failure}")
        return found.value


@dataclass(frozen=True)
class Judge:
    """Tells by a number on which side of the change a rung is: the nearer of both ends."""

    good: Number
    bad: Number

    def differs(self, noisy: bool) -> bool:
        """Whether there is a change at all between the ends."""
        if self.good is None or self.bad is None or not noisy:
            return self.good != self.bad
        return ratio(self.good, self.bad) - 1 > THRESHOLD

    def bad_at(self, value: Number) -> bool | None:
        """Whether a number is like the bad end's; None where it cannot tell, as where the benchmark fails else."""
        if value is None or self.good is None or self.bad is None:
            known = (self.good is None) != (self.bad is None)
            return (value is None) == (self.bad is None) if known else None
        return abs(value - self.bad) < abs(value - self.good)


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
    low, high, untold = first_bad(between, lambda name: judge.bad_at(bench.value(name, key)))
    step = Step(key, noisy, low, high, bench.value(low, key), bench.value(high, key))
    confirm.confirm(bench.folder, bench.ladder, [step], rounds, bench.ran)
    check = confirm.known(bench.folder, step)
    found = Found(
        library=library, good=low, bad=high, untold=tuple(untold), confirmed=check is not None and check.confirmed
    )
    seen = tuple(
        Seen(releases=bench.ladder.rung(name).releases, value=value, bad=judge.bad_at(value))
        for name in bench.known
        for value in [bench.value(name, key)]
    )
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

    def bad(version: str, library: str = found.bad) -> bool | None:
        return judge.bad_at(grid.value(library, version, key))

    if bad(versions[0]):
        verdict = f"{found.library} {found.bad} alone: it is there with {name} {versions[0]} too"
        return msgspec.structs.replace(answer, verdict=verdict, seen=answer.seen + grid.seen(key, judge))
    lower, upper, untold = first_bad(versions, bad)
    places = [(found.good, lower), (found.bad, lower), (found.good, upper), (found.bad, upper)]
    corners = tuple(grid.at(library, version, key, judge) for library, version in places)
    pair = [corner.bad for corner in corners] == [False, False, False, True]
    both = f"{found.library} ≥ {found.bad} together with {name} ≥ {upper}"
    verdict = f"{both}: neither alone changes it" if pair else _alone(found, name, lower, upper, corners)
    return msgspec.structs.replace(
        answer,
        other=Found(library=name, good=lower, bad=upper, untold=tuple(untold), confirmed=pair),
        corners=corners,
        verdict=verdict,
        seen=answer.seen + grid.seen(key, judge),
    )


def _alone(found: Found, name: str, lower: str, upper: str, corners: Sequence[Seen]) -> str:
    """What four corners say that are not those of a pair."""
    if corners[2].bad:
        return f"{name} {upper} alone: it is there with {found.library} {found.good} too"
    if corners[1].bad:
        return f"{found.library} {found.bad} alone: it is there with {name} {lower} too"
    return f"not to be told: the four corners of {found.library} {found.bad} and {name} {upper} contradict each other"


class Grid:
    """Rungs of two libraries, built as they are asked for, in a ladder of its own within the ladder."""

    def __init__(self, bench: Bench, other: str, dates: dict[str, datetime]) -> None:
        self.other, self.dates, self.main = other, dates, bench.ladder
        definition = bench.ladder.definition
        hold = tuple(text for text in definition.hold if locks.pinned(text)[0] != other)
        self.folder = bench.folder / "pairs" / other
        self.held = ladder.dates_held(msgspec.structs.replace(definition, hold=hold), bench.ladder.suite)
        empty = msgspec.structs.replace(
            bench.ladder, definition=msgspec.structs.replace(definition, hold=hold), rungs=()
        )
        built = (self.folder / "ladder.json").is_file()
        self.bench = Bench(self.folder, ladder.read_ladder(self.folder) if built else empty, bench.keys, bench.ran)

    def value(self, library: str, other: str, key: Key) -> Number:
        """What the pair of releases gives. Raises UsageError where it cannot be had together or not be run."""
        name = f"{library}+{self.other}-{other}"
        if name not in {rung.name for rung in self.bench.ladder.rungs}:
            main = self.main.rung(library)
            date = max(datetime.fromisoformat(main.date), self.dates[other])
            held = (text for text in main.releases if locks.pinned(text)[0] != self.other)
            rung = Rung(name=name, date=date.isoformat(), releases=(*held, f"{self.other}=={other}"))
            self.bench.ladder = ladder.add(self.folder, self.bench.ladder, [rung], self.held)
            asv.configure(self.folder, self.bench.ladder)
        return self.bench.value(name, key)

    def at(self, library: str, other: str, key: Key, judge: Judge) -> Seen:
        """The same with its side."""
        value = self.value(library, other, key)
        releases = self.bench.ladder.rung(f"{library}+{self.other}-{other}").releases
        return Seen(releases=releases, value=value, bad=judge.bad_at(value))

    def seen(self, key: Key, judge: Judge) -> tuple[Seen, ...]:
        """All that was run."""
        found = []
        for name in self.bench.known:
            value = self.bench.value(name, key)
            found.append(Seen(releases=self.bench.ladder.rung(name).releases, value=value, bad=judge.bad_at(value)))
        return tuple(found)
