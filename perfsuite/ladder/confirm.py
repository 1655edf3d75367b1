"""Confirms alarms before they are reported: asv runs both rungs again in turn, several times, apart from the results.

A counter is confirmed if it gives the recorded numbers every time. A time is confirmed if every time of one rung is
beyond every time of the other by more than the threshold. With two equal rungs, all four times of one are on one side
of the other's once in 70 alarms, so it must also be the recorded side. A round in which a rung could not run does not
count: it is not kept, and the next publishing repeats it.
"""

import hashlib
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from perfsuite.ladder import asv
from perfsuite.ladder.asv import THRESHOLD
from perfsuite.ladder.asv_results import Run, show
from perfsuite.ladder.ladder import Ladder
from perfsuite.ladder.series_steps import Step, ratio
from perfsuite.records import codec
from perfsuite.records.formats import timestamp
from perfsuite.records.record import Record

ROUNDS = 4
EXACT_ROUNDS = 2  # of numbers that repeat themselves
LEAST = 3  # rounds of a time: fewer are not enough

Ran = Callable[[Run], None]


class Check(Record, frozen=True, kw_only=True):
    """An alarm that was run again, with the number of each round; None if the benchmark fails, as recorded, or no
    longer fails. Format 1: 2026-11, first.

    It is written after each round, and is valid only after ``rounds`` of them.
    """

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
    rounds: int = 0


def known(folder: Path, step: Step) -> Check | None:
    """The check of exactly this alarm: recorded numbers that have changed since make another alarm."""
    check = _begun(folder, step)
    return None if check and len(check.new_again) < max(check.rounds, LEAST if step.noisy else 0) else check


def confirm(
    folder: Path, ladder: Ladder, steps: Iterable[Step], rounds: int, ran: Ran = lambda _: None
) -> dict[Step, str]:
    """Run the rungs of all unchecked alarms, and keep the checks. Returns the alarms that could not run again, each
    with the reason: they stay unchecked.

    Counters share the runs of a rung; the rungs of a time's alarm run in turn.
    """
    refused: dict[Step, str] = {}
    for names, alarms, done, count in _batches(folder, ladder, steps, rounds):
        again = {step: _again(folder, step) for step in alarms}
        for number in range(done, count):
            runs = {}
            for name in names if number % 2 == 0 else reversed(names):
                keys = list(dict.fromkeys(step.key for step in again if name in (step.old_rung, step.new_rung)))
                if keys:
                    runs[name] = asv.run(folder, ladder, ladder.rung(name), fresh=True, only=keys)
                    ran(runs[name])
            for step, (old, new) in list(again.items()):
                if reason := _why_none(folder, ladder, runs, step):
                    refused[step] = reason
                    del again[step]
                    continue
                old.append(_value(runs[step.old_rung], step))
                new.append(_value(runs[step.new_rung], step))
                codec.write(_path(folder, step), _check(step, old, new, count))
    return refused


def _why_none(folder: Path, ladder: Ladder, runs: Mapping[str, Run], step: Step) -> str:
    """Why these runs do not decide an alarm; empty if they do.

    A benchmark that was recorded as failing, and fails, is an answer; one that fails only now may do so for a full
    disk.
    """
    for name, recorded in ((step.old_rung, step.old), (step.new_rung, step.new)):
        run, release = runs[name], f"{ladder.definition.library} {name}"
        if run.failure and not run.at(step.key):
            return f"{release} could not run again: {run.failure}"
        if recorded is not None and _value(run, step) is None:
            why = run.failure or f"see {asv.log_of(folder, name, fresh=True)}"
            return f"{show(step.key)} gave no number at {release} this time, but it had one: {why}"
    return ""


def _check(step: Step, old: Sequence[float | None], new: Sequence[float | None], rounds: int) -> Check:
    """The state of an alarm after this many rounds."""
    return Check(
        date=timestamp(),
        benchmark=show(step.key),
        old_rung=step.old_rung,
        new_rung=step.new_rung,
        old=step.old,
        new=step.new,
        old_again=tuple(old),
        new_again=tuple(new),
        confirmed=len(new) >= rounds and holds(step, old, new),
        rounds=rounds,
    )


def runs_needed(folder: Path, ladder: Ladder, steps: Iterable[Step], rounds: int) -> int:
    """The number of runs of a rung that `confirm` will make."""
    return sum(len(names) * (count - done) for names, _, done, count in _batches(folder, ladder, steps, rounds))


def _batches(
    folder: Path, ladder: Ladder, steps: Iterable[Step], rounds: int
) -> list[tuple[list[str], list[Step], int, int]]:
    """The rungs to run for each set of alarms, the rounds that all of them already have, and the number to reach."""
    waiting = [step for step in steps if known(folder, step) is None]
    exact = [step for step in waiting if not step.noisy]
    involved = {name for step in exact for name in (step.old_rung, step.new_rung)}
    rungs = [rung.name for rung in ladder.rungs if rung.name in involved]
    pairs: dict[tuple[str, str], list[Step]] = {}
    for step in waiting:
        if step.noisy:
            pairs.setdefault((step.old_rung, step.new_rung), []).append(step)
    batches = [([*pair], alarms, often(True, rounds)) for pair, alarms in pairs.items()]
    if exact:
        batches.insert(0, (rungs, exact, often(False, rounds)))
    found = []
    for names, alarms, count in batches:
        done = min(len(_again(folder, step)[1]) for step in alarms)
        found.append((names, alarms, done, max(count, done + 1)))
    return found


def often(noisy: bool, rounds: int) -> int:
    """How many times a rung runs again if ``rounds`` are requested."""
    return max(rounds, LEAST) if noisy else min(rounds, EXACT_ROUNDS)


def holds(step: Step, old: Sequence[float | None], new: Sequence[float | None]) -> bool:
    """Whether fresh runs of both rungs show the recorded change."""
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
    """The same number; for a time, only that there is one."""
    return (recorded is None) == (value is None) if step.noisy else recorded == value


def _value(run: Run, step: Step) -> float | None:
    """A run's number for the alarm's benchmark; None if it failed."""
    found = run.at(step.key)
    return None if found is None else found.value


def _begun(folder: Path, step: Step) -> Check | None:
    """The alarm's check so far."""
    path = _path(folder, step)
    return codec.read(path, Check) if path.is_file() else None


def _again(folder: Path, step: Step) -> tuple[list[float | None], list[float | None]]:
    """The numbers of an interrupted check's rounds, of the old rung and of the new."""
    check = _begun(folder, step)
    return (list(check.old_again), list(check.new_again)) if check else ([], [])


def _path(folder: Path, step: Step) -> Path:
    follows_from = [show(step.key), step.old_rung, step.new_rung, repr(step.old), repr(step.new)]
    name = hashlib.sha256("\n".join(follows_from).encode()).hexdigest()[:16]
    return folder / "checks" / f"{name}.json"
