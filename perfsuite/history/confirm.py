"""An alarm is run again before it is told: both rungs in turn, several times, by asv, beside the recorded results.

It holds where a counter gives the recorded numbers every time, and where every time of one rung lies beyond every time
of the other by more than the threshold. Of two equal rungs all of four times are on one side of the other four once in
70 alarms, which is why it also has to be the side that was recorded.
"""

import hashlib
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from perfsuite import records
from perfsuite.history import asv
from perfsuite.history.asv import THRESHOLD
from perfsuite.history.ladder import Ladder
from perfsuite.history.results import Run, show
from perfsuite.history.steps import Step, ratio
from perfsuite.records import Record

ROUNDS = 4
EXACT_ROUNDS = 2  # of what repeats itself
LEAST = 3  # rounds of a time: fewer say nothing

Ran = Callable[[Run], None]


class Check(Record, frozen=True, kw_only=True):
    """An alarm that was run again, with what each round gave: None where it failed. Format 1: 2026-11, first."""

    format: int = 1
    date: str
    benchmark: str
    old_rung: str
    new_rung: str
    old: float | None
    new: float | None
    old_again: tuple[float | None, ...]
    new_again: tuple[float | None, ...]
    confirmed: bool


def known(folder: Path, step: Step) -> Check | None:
    """The check of this very alarm: recorded numbers that have changed since make another."""
    path = _path(folder, step)
    check = records.read(path, Check) if path.is_file() else None
    return None if check and step.noisy and len(check.new_again) < LEAST else check


def confirm(folder: Path, ladder: Ladder, steps: Iterable[Step], rounds: int, ran: Ran = lambda _: None) -> None:
    """Run the rungs of all alarms that were not checked yet, and keep the checks.

    Counters share the runs of a rung; the rungs of a time's alarm are run side by side.
    """
    for names, alarms, count in _batches(folder, ladder, steps, rounds):
        again: dict[str, list[Run]] = {name: [] for name in names}
        for number in range(count):
            for name in names if number % 2 == 0 else reversed(names):
                keys = list(dict.fromkeys(step.key for step in alarms if name in (step.old_rung, step.new_rung)))
                done = asv.run(folder, ladder, ladder.rung(name), fresh=True, only=keys)
                again[name].append(done)
                ran(done)
        for step in alarms:
            old, new = (tuple(_value(run, step) for run in again[name]) for name in (step.old_rung, step.new_rung))
            check = Check(
                date=records.timestamp(),
                benchmark=show(step.key),
                old_rung=step.old_rung,
                new_rung=step.new_rung,
                old=step.old,
                new=step.new,
                old_again=old,
                new_again=new,
                confirmed=holds(step, old, new),
            )
            records.write(_path(folder, step), check)


def runs_needed(folder: Path, ladder: Ladder, steps: Iterable[Step], rounds: int) -> int:
    """How many runs of a rung `confirm` will make."""
    return sum(len(names) * count for names, _, count in _batches(folder, ladder, steps, rounds))


def _batches(
    folder: Path, ladder: Ladder, steps: Iterable[Step], rounds: int
) -> list[tuple[list[str], list[Step], int]]:
    """Which rungs are run for which alarms, and how often."""
    waiting = [step for step in steps if known(folder, step) is None]
    exact = [step for step in waiting if not step.noisy]
    involved = {name for step in exact for name in (step.old_rung, step.new_rung)}
    rungs = [rung.name for rung in ladder.rungs if rung.name in involved]
    pairs: dict[tuple[str, str], list[Step]] = {}
    for step in waiting:
        if step.noisy:
            pairs.setdefault((step.old_rung, step.new_rung), []).append(step)
    noisy = [([*pair], alarms, often(True, rounds)) for pair, alarms in pairs.items()]
    return [(rungs, exact, often(False, rounds)), *noisy] if exact else noisy


def often(noisy: bool, rounds: int) -> int:
    """How often a rung is run again where ``rounds`` are asked for."""
    return max(rounds, LEAST) if noisy else min(rounds, EXACT_ROUNDS)


def holds(step: Step, old: Sequence[float | None], new: Sequence[float | None]) -> bool:
    """Whether fresh runs of both rungs show what was recorded."""
    if not old or not new:
        return False
    if not step.noisy or step.kind in ("broke", "mended"):
        return all(_same(step, step.old, value) for value in old) and all(_same(step, step.new, v) for v in new)
    olds, news = ([value for value in values if value is not None] for values in (old, new))
    if len(olds) < max(LEAST, len(old)) or len(news) < max(LEAST, len(new)):
        return False
    apart = max(olds) < min(news) if step.kind == "regressed" else min(olds) > max(news)
    return apart and ratio(statistics.median(olds), statistics.median(news)) - 1 > THRESHOLD


def _same(step: Step, recorded: float | None, value: float | None) -> bool:
    """The same number; of a time, no more than that there is one."""
    return (recorded is None) == (value is None) if step.noisy else recorded == value


def _value(run: Run, step: Step) -> float | None:
    """What a run gave for the alarm's benchmark; None where it failed."""
    found = run.values.get(step.key[0], {}).get(step.key[1])
    return None if found is None else found.value


def _path(folder: Path, step: Step) -> Path:
    follows_from = [show(step.key), step.old_rung, step.new_rung, repr(step.old), repr(step.new)]
    name = hashlib.sha256("\n".join(follows_from).encode()).hexdigest()[:16]
    return folder / "checks" / f"{name}.json"
