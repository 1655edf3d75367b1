"""What a ladder tells: which release changed what, by how much, and whether that held when it was run again."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

from perfsuite.history import confirm, lockfile, repository, results, steps
from perfsuite.history.evidence import why
from perfsuite.history.ladder import LOCK, Ladder, Rung
from perfsuite.history.results import Benchmark, Run, show
from perfsuite.history.steps import Step
from perfsuite.records.formats import timestamp
from perfsuite.units import show_bytes, show_change, show_count, show_time, show_whole
from perfsuite.wire.record import Record

FORMAT = 1
FINE = 1.01  # below which a counter's difference is told too
FACTOR = 2.0  # from which on a change is told as "times" rather than in percent
NOT_RUN = "It has not been run here with the suite, or what it inherits, as they are now."
WORSE, BETTER = ("broke", "regressed"), ("improved", "mended")
CONFIRMED, UNCONFIRMED, UNCHECKED = "confirmed", "unconfirmed", "unchecked"


class Change(Record, frozen=True, kw_only=True):
    """A step of one benchmark. ``kind`` is regressed, improved, broke or mended; None is a failure of the benchmark.

    ``status``: confirmed, unconfirmed (run again, it did not hold) or unchecked (not run again). ``again`` are the
    numbers of the old and of the new rung from then. ``series`` has a number for each of the story's rungs. ``between``
    are the rungs without a number between the two: it may be theirs, and ``beside`` is then what else differs between
    the two. ``drift``: it moved a little with each of so many releases; 0 where it stepped.
    """

    benchmark: str
    parameters: str
    title: str
    unit: str
    kind: str
    noisy: bool
    old_rung: str
    new_rung: str
    old: float | None
    new: float | None
    status: str
    again: tuple[tuple[float | None, ...], tuple[float | None, ...]] = ((), ())
    why: str = ""
    series: tuple[float | None, ...] = ()
    between: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    drift: int = 0

    @property
    def since(self) -> str:
        """The release that did it; ``2 or 3`` where one of several did, ``1 to 12`` where all of them did."""
        if self.drift:
            return f"{self.old_rung} to {self.new_rung}"
        return f"{', '.join(self.between)} or {self.new_rung}" if self.between else self.new_rung

    @property
    def unlike(self) -> str:
        """How it came, where it is not with its rung's release alone: ``with 2 or 3``; else empty."""
        return f"little by little from {self.since}" if self.drift else f"with {self.since}" if self.between else ""

    @property
    def label(self) -> str:
        """As asv names it."""
        return show((self.benchmark, self.parameters))

    @property
    def move(self) -> str:
        """``0 → 2,048 samples``."""
        return show_move(self.old, self.new, self.unit)

    @property
    def by(self) -> str:
        """``+12.0 %``, or from twice on ``2.4 times more``; where a percentage hides it, also the difference; and of a
        drift what that is for each release.
        """
        if self.drift and self.old and self.new:
            return f"{self._by}, {(self.new / self.old) ** (1 / self.drift):.3g} at each release"
        return self._by

    @property
    def _by(self) -> str:
        if self.old is None or self.new is None:
            return ""
        if self.unit == "bytes":
            difference = f"{'+' if self.new > self.old else '-'}{show_bytes(abs(self.new - self.old))}"
            return f"{difference} ({show_change(self.old, self.new)})"
        if not self.noisy and 1 < steps.ratio(self.old, self.new) < FINE and float(self.new - self.old).is_integer():
            return f"{self.new - self.old:+,.0f} ({show_change(self.old, self.new)})"
        if self.old <= 0 or self.new <= 0 or steps.ratio(self.old, self.new) < FACTOR:
            return show_change(self.old, self.new)
        return f"{steps.ratio(self.old, self.new):.1f} times {'more' if self.new > self.old else 'less'}"


class Told(Record, frozen=True, kw_only=True):
    """A rung: what changed beside the release, what its last run cost, and what of it could not be run."""

    name: str
    date: str
    commit: str
    beside: tuple[str, ...] = ()
    seconds: float | None = None
    failure: str = ""
    failed: tuple[str, ...] = ()


class Story(Record, frozen=True, kw_only=True):
    """All of it, as ``story.json`` has it. Format 1: 2026-11, first."""

    format: int = FORMAT
    date: str
    library: str
    about: str
    hold: tuple[str, ...]
    python: str
    machine: str
    series: int
    rungs: tuple[Told, ...]
    changes: tuple[Change, ...]
    about_dates: str = ""

    def told(self, *statuses: str) -> list[Change]:
        """The changes of these statuses."""
        return [change for change in self.changes if change.status in statuses]

    @property
    def ordered(self) -> list[Change]:
        """What is told, in the order of the releases and there the worst first."""
        releases = by_release(self.told(CONFIRMED, UNCHECKED))
        return [change for _, groups in releases for group in groups for change in group]

    @property
    def sentences(self) -> list[tuple[str, str]]:
        """Every release that changed something, with what in words."""
        found = []
        for release, groups in by_release(self.told(CONFIRMED, UNCHECKED)):
            parts = []
            for words, kinds in (("worse", WORSE), ("better", BETTER)):
                these = [change for group in groups for change in group if change.kind in kinds]
                for how in dict.fromkeys(change.unlike for change in these):
                    alike = [change for change in these if change.unlike == how]
                    titles = dict.fromkeys(change.title for change in alike)
                    told = f"{words} {how}".rstrip()
                    parts.append(f"{count_series(alike)} series {told} ({'; '.join(titles)})")
            found.append((release, ", ".join(parts)))
        return found

    @property
    def failures(self) -> list[Told]:
        """The rungs of which something could not be run, or that were not run at all."""
        return [rung for rung in self.rungs if rung.failure or rung.failed]


def tell(folder: Path, ladder: Ladder, machine: str, found: Sequence[Step]) -> Story:
    """The story of these steps as their checks stand now."""
    runs = last_runs(folder, ladder)
    known = results.benchmarks(folder, ladder)
    rungs = {rung.name: rung for rung in ladder.rungs}
    names = [*rungs]
    changes = []
    for step in found:
        check = confirm.known(folder, step)
        benchmark = known[step.key[0]]
        old, new = rungs[step.old_rung], rungs[step.new_rung]
        between = () if step.drift else tuple(names[names.index(old.name) + 1 : names.index(new.name)])
        changes.append(
            Change(
                benchmark=step.key[0],
                parameters=step.key[1],
                title=benchmark.title,
                unit=benchmark.unit,
                kind=step.kind,
                noisy=step.noisy,
                old_rung=step.old_rung,
                new_rung=step.new_rung,
                old=step.old,
                new=step.new,
                status=UNCHECKED if check is None else CONFIRMED if check.confirmed else UNCONFIRMED,
                again=(check.old_again, check.new_again) if check else ((), ()),
                why=why(folder / "evidence", old.commit, new.commit, *step.key),
                series=_series(ladder, runs, step),
                between=between,
                beside=_beside(folder, ladder, old, new) if between else (),
                drift=step.drift,
            )
        )
    return Story(
        date=timestamp(),
        library=ladder.definition.library,
        about=ladder.suite.about,
        hold=ladder.definition.hold,
        python=ladder.python_version,
        machine=machine,
        series=len({key for run in runs.values() for key, _ in run.by_key()}),
        rungs=tuple(_rungs(folder, ladder, runs)),
        changes=tuple(changes),
        about_dates=ladder.about_dates,
    )


def last_runs(folder: Path, ladder: Ladder) -> dict[str, Run]:
    """The last run of every rung that has been run, by its name."""
    found = {rung.name: results.last_run(folder, ladder, rung.name) for rung in ladder.rungs}
    return {name: run for name, run in found.items() if run is not None}


def find(folder: Path, ladder: Ladder) -> list[Step]:
    """All steps of what has been run."""
    known: dict[str, Benchmark] = results.benchmarks(folder, ladder)
    return steps.find(ladder.rungs, last_runs(folder, ladder), known)


def by_release(changes: Sequence[Change]) -> list[tuple[str, list[list[Change]]]]:
    """The changes by release, and in it by benchmark and kind, and by the rung against which they are."""
    found = []
    for rung, inside in groupby(changes, key=lambda change: change.new_rung):
        groups: dict[tuple[str, ...], list[Change]] = {}
        for change in inside:
            groups.setdefault((change.benchmark, change.kind, change.status, change.old_rung), []).append(change)
        found.append((rung, sorted(groups.values(), key=lambda group: (*WORSE, *BETTER).index(group[0].kind))))
    return found


def count_series(changes: Sequence[Change]) -> int:
    """How many series they are of: one may change with several releases."""
    return len({change.label for change in changes})


def show_move(old: float | None, new: float | None, unit: str, to: str = " → ") -> str:
    """Two numbers in human units, with the unit named once."""
    first, last = show_value(old, unit), show_value(new, unit)
    return f"{first.removesuffix(f' {unit}') if last.endswith(f' {unit}') else first}{to}{last}"


def show_value(value: float | None, unit: str) -> str:
    """A number in human units; None is a failure."""
    if value is None:
        return "failed"
    if unit == "bytes":
        return show_bytes(value)
    if unit in ("second", "seconds"):
        return show_time(value)
    number = show_whole(value) if float(value).is_integer() else show_count(value)
    return f"{number} {unit}" if unit and unit != "unit" else number


def _series(ladder: Ladder, runs: Mapping[str, Run], step: Step) -> tuple[float | None, ...]:
    found = []
    for rung in ladder.rungs:
        value = runs[rung.name].values.get(step.key[0], {}).get(step.key[1]) if rung.name in runs else None
        found.append(None if value is None else value.value)
    return tuple(found)


def _rungs(folder: Path, ladder: Ladder, runs: Mapping[str, Run]) -> list[Told]:
    """The rungs with what else is new on them."""
    found, below = [], None
    for rung in ladder.rungs:
        run = runs.get(rung.name)
        found.append(
            Told(
                name=rung.name,
                date=rung.date,
                commit=rung.commit,
                beside=_beside(folder, ladder, below, rung),
                seconds=run.seconds if run else None,
                failure=rung.failure or (run.failure if run else NOT_RUN),
                failed=tuple(run.failed) if run and not run.failure else (),
            )
        )
        below = rung if rung.commit else below
    return found


def _beside(folder: Path, ladder: Ladder, below: Rung | None, rung: Rung) -> tuple[str, ...]:
    """What else differs from a rung below: what the releases forced."""
    if below is None or not rung.commit:
        return ()
    old, new = (repository.show(folder / "repo", one.commit, LOCK) for one in (below, rung))
    return tuple(text for text in lockfile.differences(old, new) if text.split()[0] != ladder.definition.library)
