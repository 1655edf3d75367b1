"""Fresh runs for a bisection, of a ladder's rungs and of pairs of releases, and the side of the change of each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import msgspec

from perfsuite.environments import lockfile
from perfsuite.errors import UsageError
from perfsuite.features.ladder import asv, building
from perfsuite.features.ladder.asv import THRESHOLD, RunKind
from perfsuite.features.ladder.asv_results import Key, Run, Value
from perfsuite.features.ladder.ladder import Ladder, Rung, read_ladder
from perfsuite.features.ladder.series_steps import ratio
from perfsuite.records.record import Record

Number = float | None  # None: the benchmark fails


class RungRun(Record, frozen=True, kw_only=True):
    """A fresh run during a bisection: the releases, its number, and which end of the ladder is nearer. ``between``: it
    is like neither end.
    """

    releases: tuple[str, ...]
    value: Number
    bad: bool | None
    between: bool = False


@dataclass(frozen=True)
class Judge:
    """Decides from a number on which side of the change a rung is: that of the nearer end."""

    good: Number
    bad: Number
    noisy: bool = False

    def differs(self) -> bool:
        """Whether there is a change between the ends at all."""
        return self.unlike(self.good, self.bad)

    def unlike(self, one: Number, other: Number) -> bool:
        """Whether two numbers of the series differ: times by more than the threshold."""
        if one is None or other is None or not self.noisy:
            return one != other
        return ratio(one, other) - 1 > THRESHOLD

    def between(self, value: Number) -> bool:
        """Whether a number is like neither end: then there is more than one change."""
        return value is not None and self.unlike(value, self.good) and self.unlike(value, self.bad)

    def bad_at(self, value: Number) -> bool | None:
        """Whether a number is like the bad end's; None if unknown, for example if the benchmark fails for another
        reason.
        """
        if value is None or self.good is None or self.bad is None:
            known = (self.good is None) != (self.bad is None)
            return (value is None) == (self.bad is None) if known else None
        return abs(value - self.bad) < abs(value - self.good)


@dataclass
class RungBench:
    """Fresh runs of a ladder's rungs, each made at most once for all series."""

    folder: Path
    ladder: Ladder
    keys: Sequence[Key]
    ran: Callable[[Run], None]
    known: dict[str, Run] = field(default_factory=dict)

    def value(self, rung: str, key: Key) -> Number:
        """The rung's number. Raises UsageError if it cannot run."""
        found = self._found(rung, key)
        if found is None:
            why = self.known[rung].failure or "the benchmark does not apply there."
            raise UsageError(f"{self.ladder.definition.library} {rung} cannot run: {why}")
        return found.value

    def side(self, rung: str, key: Key, judge: Judge) -> bool | None:
        """Whether the rung is like the bad end; None if unknown, or if it cannot run at all."""
        found = self._found(rung, key)
        return None if found is None else judge.bad_at(found.value)

    def at(self, rung: str, key: Key, judge: Judge) -> RungRun:
        """Number and side, with the releases."""
        found = self._found(rung, key)
        return RungRun(
            releases=self.ladder.rung(rung).releases,
            value=found.value if found else None,
            bad=self.side(rung, key, judge),
            between=found is not None and judge.between(found.value),
        )

    def seen(self, key: Key, judge: Judge) -> tuple[RungRun, ...]:
        """All fresh runs."""
        return tuple(self.at(name, key, judge) for name in self.known)

    def _found(self, rung: str, key: Key) -> Value | None:
        """The value of a series in the rung's run; None if there is none."""
        if rung not in self.known:
            self.known[rung] = asv.run(self.folder, self.ladder, self.ladder.rung(rung), RunKind.FRESH, only=self.keys)
            self.ran(self.known[rung])
        return self.known[rung].at(key)


class Grid:
    """Rungs of two libraries, built on demand, in a ladder of its own within the ladder."""

    def __init__(self, bench: RungBench, other: str, dates: dict[str, datetime]) -> None:
        self.other, self.dates, self.main = other, dates, bench.ladder
        definition = bench.ladder.definition
        hold = tuple(text for text in definition.hold if lockfile.pinned(text)[0] != other)
        self.folder = bench.folder / "pairs" / other
        self.held = building.dates_held(msgspec.structs.replace(definition, hold=hold), bench.ladder.suite)
        rungs = read_ladder(self.folder).rungs if (self.folder / "ladder.json").is_file() else ()
        definition = msgspec.structs.replace(definition, hold=hold)
        pairs = msgspec.structs.replace(bench.ladder, definition=definition, rungs=rungs)
        self.bench = RungBench(self.folder, pairs, bench.keys, bench.ran)

    def rung(self, library: str, other: str) -> str:
        """The name of the pair's rung in ``bench``. A pair that an earlier bisection could not lock is tried again."""
        name = f"{library}+{self.other}-{other}"
        known = self.bench.ladder
        if name not in self.bench.known and name not in {rung.name for rung in known.rungs if rung.commit}:
            main = self.main.rung(library)
            date = max(datetime.fromisoformat(main.date), self.dates[other])
            held = (text for text in main.releases if lockfile.pinned(text)[0] != self.other)
            rung = Rung(name=name, date=date.isoformat(), releases=(*held, f"{self.other}=={other}"))
            others = tuple(rung for rung in known.rungs if rung.name != name)
            self.bench.ladder = building.add(
                self.folder, msgspec.structs.replace(known, rungs=others), [rung], self.held
            )
            asv.configure(self.folder, self.bench.ladder)
        return name
