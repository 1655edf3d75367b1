"""Records real trials, without and with a real delay, from which docs/detection.md is computed.

    python benchmarks/record_trials.py [ROUNDS]         (10 by default: some minutes each)

A round is one trial with each delay on side B, in random order, of one of the cells in turn: the trial of an open time,
but of an environment against itself. Rounds are appended to benchmarks/data/trials.jsonl, so that
recordings of several hours can be combined. Record them next to the machine's usual load.
"""

import contextlib
import os
import random
import sys
import time
from dataclasses import replace
from pathlib import Path

from perfsuite.catalog.registry import Catalog
from perfsuite.errors import Refused
from perfsuite.records import codec
from perfsuite.records.formats import timestamp
from perfsuite.records.record import Record
from perfsuite.run.measuring import Measuring
from perfsuite.run.question import Question
from perfsuite.run.runner import Runner, Settings
from perfsuite.run.sides import RUNNING, Side
from perfsuite.show.text.verdict_words import comparison_summary

DATA = Path(__file__).parent / "data" / "trials.jsonl"
CELLS = ("gpt2_tiny-single-cpu_x1", "bloom_tiny-ddp-cpu_x2")
DELAYS = (0, 3, 5)  # percent of every step
SETTINGS = Settings(steps=10, warmup=3)


class Recorded(Record, frozen=True, kw_only=True):
    """One trial: the share of each step that was added, the trial's result, and each pair's difference by metric, in
    logarithms. ``load`` are the processes that wanted a core when it began, ``seconds`` its whole time.
    """

    cell: str
    round: str
    delay: float
    status: str
    statuses: dict[str, str]
    differences: dict[str, list[float]]
    step_seconds: float
    seconds: float
    load: float
    cores: int


def main(rounds: int) -> None:
    """Append the rounds, trial by trial."""
    DATA.parent.mkdir(exist_ok=True)
    here = Side(RUNNING, Catalog())
    for number in range(rounds):
        round_id = timestamp()
        for percent in random.sample(DELAYS, len(DELAYS)):
            keep(trial(here, CELLS[number % len(CELLS)], percent, round_id))
        print(f"round {number + 1} of {rounds}", flush=True)


def trial(side: Side, cell: str, percent: int, round_id: str) -> Recorded:
    """One trial of a cell against itself; side B has the delay. Raises Refused if no time could be compared."""
    with contextlib.closing(Runner(side.catalog, SETTINGS)) as runner:  # the measurement before a trial
        measured = runner.measure(side.cell(cell), lambda *_: None)
    step_seconds = float(measured.readings["step_time_seconds"].value)
    load, begin = os.getloadavg()[0], time.monotonic()
    how = Measuring(side.catalog, SETTINGS, Path.cwd())
    question = Question(how, side, replace(side, faults=delayed(percent)), [cell], step_seconds={cell: step_seconds})
    question.compare_times()
    found = question.comparison(cell)
    if not found.times:
        raise Refused(f"{cell}: {comparison_summary(found.verdict)}")
    return Recorded(
        cell=cell,
        round=round_id,
        delay=percent / 100,
        status=found.verdict.status,
        statuses={line.metric: line.status for line in found.verdict.lines},
        differences={one.metric: [round(d, 5) for d in one.differences] for one in found.times},
        step_seconds=round(float(found.a.readings["step_time_seconds"].value), 6),
        seconds=round(time.monotonic() - begin, 1),
        load=load,
        cores=len(os.sched_getaffinity(0)),
    )


def delayed(percent: int) -> tuple[str, ...]:
    """The fault that makes each step take so many percent longer; none for 0."""
    return (f"perfsuite.features.prove.selftest.delays:slow_{percent}",) if percent else ()


def keep(one: Recorded) -> None:
    """Append the trial, and print it."""
    with DATA.open("a") as file:
        file.write(codec.encode_line(one) + "\n")
    pairs = len(next(iter(one.differences.values()), []))
    print(
        f"{one.cell} +{100 * one.delay:g} %: {one.status}, {pairs} pairs, {one.seconds:.0f} s, load {one.load:.1f}",
        flush=True,
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
