"""The story of a ladder: which release changed what, by how much, and whether new runs confirmed it."""

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

from perfsuite.catalog.definitions import OF_A_PEAK, OF_A_STEP
from perfsuite.environments import lockfile
from perfsuite.features.ladder import asv_results as results
from perfsuite.features.ladder import confirm, repository
from perfsuite.features.ladder import series_steps as steps
from perfsuite.features.ladder.asv_results import Benchmark, Run, show
from perfsuite.features.ladder.ladder import LOCK, Ladder, Rung
from perfsuite.features.ladder.rung_evidence import why
from perfsuite.features.ladder.series_steps import SeriesStep
from perfsuite.records.formats import FORMAT, timestamp
from perfsuite.records.record import Record
from perfsuite.show.text.line_words import note_text
from perfsuite.system.units import show_bytes, show_change, show_count, show_time, show_whole

FINE = 1.01  # below this ratio, a counter's difference is shown too
FACTOR = 2.0  # from this ratio on, a change is shown as "times" instead of in percent
NOT_RUN = "It has not been run here with the present suite, or with what it now inherits."
WORSE, BETTER = ("broke", "regressed"), ("improved", "mended")
CONFIRMED, UNCONFIRMED, UNCHECKED = "confirmed", "unconfirmed", "unchecked"


class SeriesChange(Record, frozen=True, kw_only=True):
    """A step of one benchmark. ``kind`` is regressed, improved, broke or mended; None is a failure of the benchmark.

    ``status``: confirmed, unconfirmed (new runs did not show it) or unchecked (not run again). ``series`` has a number
    for each of the story's rungs. ``between`` are the rungs without a number between the two, which may have caused it;
    ``beside`` is then what else differs between the two. ``drift``: it moved a little with each of so many releases; 0
    if it stepped.
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
    why: str = ""
    series: tuple[float | None, ...] = ()
    between: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    drift: int = 0

    @property
    def since(self) -> str:
        """The release that caused it; ``2 or 3`` if one of several did, ``1 to 12`` if all of them did."""
        if self.drift:
            return f"{self.old_rung} to {self.new_rung}"
        return f"{', '.join(self.between)} or {self.new_rung}" if self.between else self.new_rung

    @property
    def unlike(self) -> str:
        """When it came, if not with its rung's release alone: ``with 2 or 3``; otherwise empty."""
        return f"little by little from {self.since}" if self.drift else f"with {self.since}" if self.between else ""

    @property
    def small(self) -> bool:
        """Whether it is less than matters. A drift is never: it adds up."""
        if self.drift or not self.old or self.new is None or self.benchmark.endswith("collectives"):
            return False
        least = OF_A_PEAK if self.unit == "bytes" else OF_A_STEP
        return abs(self.new / self.old - 1) < least.share

    @property
    def label(self) -> str:
        """In asv's notation."""
        return show((self.benchmark, self.parameters))

    @property
    def move(self) -> str:
        """``0 → 2,048 samples``."""
        return show_move(self.old, self.new, self.unit)

    @property
    def by(self) -> str:
        """``+12.0 %``, or from a factor of two on ``2.4 times more``; also the difference if a percentage hides it; for
        a drift, also the change per release.
        """
        if self.drift and self.old and self.new:
            return f"{self._by}, {(self.new / self.old) ** (1 / self.drift):.3g} per release"
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


class RungState(Record, frozen=True, kw_only=True):
    """A rung: the other changes with its release, the cost of its last run, and what could not run."""

    name: str
    date: str
    commit: str
    beside: tuple[str, ...] = ()
    seconds: float | None = None
    failure: str = ""
    failed: tuple[str, ...] = ()


class Story(Record, frozen=True, kw_only=True):
    """The content of ``story.json``."""

    format: int = FORMAT
    date: str
    library: str
    about: str
    hold: tuple[str, ...]
    python: str
    machine: str
    series: int
    rungs: tuple[RungState, ...]
    changes: tuple[SeriesChange, ...]
    about_dates: str = ""

    def with_status(self, *statuses: str) -> list[SeriesChange]:
        """The changes with these statuses."""
        return [change for change in self.changes if change.status in statuses]

    @property
    def reported(self) -> list[SeriesChange]:
        """Those that new runs did not refute, and that matter."""
        return [change for change in self.with_status(CONFIRMED, UNCHECKED) if not change.small]

    @property
    def small(self) -> list[SeriesChange]:
        """Those that they did not refute either, by less than matters."""
        return [change for change in self.with_status(CONFIRMED, UNCHECKED) if change.small]

    @property
    def ordered(self) -> list[SeriesChange]:
        """All reported changes, in the order of the releases, the worst of each first."""
        releases = by_release(self.reported)
        return [change for _, groups in releases for group in groups for change in group]

    @property
    def sentences(self) -> list[tuple[str, str]]:
        """Every release that changed something, and its changes in words."""
        found = []
        for release, groups in by_release(self.reported):
            parts = []
            for words, kinds in (("worse", WORSE), ("better", BETTER)):
                these = [change for group in groups for change in group if change.kind in kinds]
                for how in dict.fromkeys(change.unlike for change in these):
                    alike = [change for change in these if change.unlike == how]
                    titles = dict.fromkeys(change.title for change in alike)
                    when = f"{words} {how}".rstrip()
                    parts.append(f"{count_series(alike)} series {when} ({'; '.join(titles)})")
            found.append((release, ", ".join(parts)))
        return found

    @property
    def failures(self) -> list[RungState]:
        """The rungs with something that could not run, or that were not run at all."""
        return [rung for rung in self.rungs if rung.failure or rung.failed]


def read_story(folder: Path, ladder: Ladder, machine: str, found: Sequence[SeriesStep]) -> Story:
    """The story of these steps with the current state of their checks."""
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
        evidence = why(folder / "evidence", old.commit, new.commit, *step.key)
        changes.append(
            SeriesChange(
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
                why="; ".join(filter(None, [evidence, note_text(check.line) if check and check.line else ""])),
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


def find(folder: Path, ladder: Ladder) -> list[SeriesStep]:
    """All steps in the existing results."""
    known: dict[str, Benchmark] = results.benchmarks(folder, ladder)
    return steps.find(ladder.rungs, last_runs(folder, ladder), known)


def by_release(changes: Sequence[SeriesChange]) -> list[tuple[str, list[list[SeriesChange]]]]:
    """The changes by release, then by benchmark and kind, and by the rung that they are compared with: the worst kind
    and the largest effect first.
    """
    found = []
    for rung, inside in groupby(changes, key=lambda change: change.new_rung):
        groups: dict[tuple[str, ...], list[SeriesChange]] = {}
        for change in inside:
            groups.setdefault((change.benchmark, change.kind, change.status, change.old_rung), []).append(change)
        largest_first = [sorted(group, key=_effect, reverse=True) for group in groups.values()]
        kinds = (*WORSE, *BETTER)
        found.append((rung, sorted(largest_first, key=lambda group: (kinds.index(group[0].kind), -_effect(group[0])))))
    return found


def _effect(change: SeriesChange) -> float:
    """By which factor it moved; infinite from or to nothing."""
    return steps.ratio(change.old, change.new) if change.old and change.new else math.inf


def count_series(changes: Sequence[SeriesChange]) -> int:
    """The number of series in these changes: one may change with several releases."""
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


def _series(ladder: Ladder, runs: Mapping[str, Run], step: SeriesStep) -> tuple[float | None, ...]:
    values = (runs[rung.name].at(step.key) if rung.name in runs else None for rung in ladder.rungs)
    return tuple(value.value if value else None for value in values)


def _rungs(folder: Path, ladder: Ladder, runs: Mapping[str, Run]) -> list[RungState]:
    """The rungs with their other changes."""
    found, below = [], None
    for rung in ladder.rungs:
        run = runs.get(rung.name)
        found.append(
            RungState(
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
    """The other differences from a rung below, which the releases forced."""
    if below is None or not rung.commit:
        return ()
    old, new = (repository.show(folder / "repo", one.commit, LOCK) for one in (below, rung))
    return tuple(text for text in lockfile.differences(old, new) if text.split()[0] != ladder.definition.library)
