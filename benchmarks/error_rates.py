"""Simulates how often stored times and a question about a single cell err, with noise between runs and between pairs.

    python benchmarks/error_rates.py [REPEATS]    # writes docs/data/error_rates; 1000 by default: some minutes

Real noise comes from benchmarks/detection.py; here it is normal or, as on a shared machine, Student's t with 3 degrees
of freedom. benchmarks/grid_error_rates.py simulates questions about many cells.
"""

import math
import random
import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from result_tables import write_table

from perfsuite.compare import noise
from perfsuite.compare.grid_groups import groups_of
from perfsuite.compare.noise import NoisePool as StoredRuns
from perfsuite.compare.pooled_pairs import Difference
from perfsuite.compare.pooling import LOOKS, Pool, open_cells
from perfsuite.compare.terms import DEDICATED, MOST_RED_RATE, SHARED, TIMED, Terms
from perfsuite.compare.timing import RULED_OUT
from perfsuite.records.verdict import Status

GROUPS = groups_of({"cell": []})
EFFECTS = (0.0, 0.03, 0.05, 0.10)
Draw = Callable[[], float]


def normal() -> float:
    return random.gauss(0, 1)


def heavy() -> float:
    """Student's t with 3 degrees of freedom, scaled to a standard deviation of 1."""
    return random.gauss(0, 1) / math.sqrt(random.gammavariate(1.5, 2) / 3) / math.sqrt(3)


def trial(effect: float, spread: float, terms: Terms, draw: Draw) -> tuple[Status, int]:
    """The status of one time of a cell that is asked about alone, and the pairs that it took."""
    pairs: list[Difference] = []
    status = Status.OPEN
    for number in range(1, LOOKS[-1] + 1):
        pairs.append(Difference(math.log1p(effect) + spread * draw(), 0.0))
        if number in LOOKS:
            pool = Pool({"cell": pairs}, GROUPS, terms.tolerance, MOST_RED_RATE / terms.cells / TIMED)
            status = pool.of("cell").status
            if status == Status.REGRESSED or "cell" not in open_cells([pool]):
                break
    return status, len(pairs)


def alarm(effect: float, runs: int, spread: float, terms: Terms, draw: Draw) -> tuple[bool, bool]:
    """Whether one run so much slower is an alarm after a change, and whether it is beyond its runs without one."""
    pool = StoredRuns.of([spread * draw() for _ in range(runs)], terms.spread)
    slower = math.log1p(effect) + spread * draw() - pool.mean
    return slower + pool.reach(RULED_OUT) > math.log1p(terms.tolerance), slower > pool.reach(1 - terms.alarm_rate)


def share(hits: int, of: int) -> str:
    return f"{100 * hits / of:.1f} %"


TRIALS = (
    "where", "pairs spread by", "noise", *(f"red at +{100 * e:g} %" for e in EFFECTS), "pairs at 0", "at +5 %",
)  # fmt: skip
STORED = (
    "where", "runs", "spread", "noise", "alarm after a change: +0 %", "+3 %", "+5 %", "slower without one: +0 %",
    "+50 %", "in the whole run",
)  # fmt: skip
PRIOR = ("PRIOR_RUNS", "slower without a change, at 0", "at +50 %")
Row = tuple[str, ...]


def trials(repeats: int, terms: Terms, where: str) -> Iterator[Row]:
    """How often a trial of one time of a cell is red, and how many pairs it takes."""
    for spread in (0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.10):
        for draw in (normal, heavy):
            made = {e: [trial(e, spread, terms, draw) for _ in range(repeats)] for e in EFFECTS}
            red = [share(sum(status == Status.REGRESSED for status, _ in made[e]), repeats) for e in EFFECTS]
            pairs = [f"{statistics.median(count for _, count in made[e]):g}" for e in (0.0, 0.05)]
            yield where, f"{100 * spread:g} %", draw.__name__, *red, *pairs


def alarms(repeats: int, terms: Terms, where: str) -> Iterator[Row]:
    """How often stored times raise an alarm, with and without a change of something else."""
    for runs in (1, 3, 10, 20):
        for spread in (terms.spread / 2, terms.spread, 2 * terms.spread):
            for draw in (normal, heavy):
                made = {
                    e: [alarm(e, runs, spread, terms, draw) for _ in range(repeats)] for e in (0.0, 0.03, 0.05, 0.5)
                }
                called = [share(sum(one for one, _ in made[e]), repeats) for e in (0.0, 0.03, 0.05)]
                beyond = [sum(one for _, one in made[e]) for e in (0.0, 0.5)]
                whole = f"{beyond[0] / repeats * TIMED * terms.cells:.2f}"
                without = [share(count, repeats) for count in beyond]
                yield where, str(runs), f"{100 * spread:g} %", draw.__name__, *called, *without, whole


@contextmanager
def constant(module: object, name: str, value: float) -> Iterator[None]:
    """The module with another value of the constant."""
    kept = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, kept)


def choices(repeats: int) -> Iterator[Row]:
    """Other values of PRIOR_RUNS, for runs that spread by 10 %, three in the pool, and one more."""
    for value in (1, 4, 10):
        with constant(noise, "PRIOR_RUNS", value):
            zero, half = ([alarm(e, 3, 0.1, SHARED, normal)[1] for _ in range(repeats)] for e in (0.0, 0.5))
        chosen = " (chosen)" * (value == noise.PRIOR_RUNS)
        yield f"{value}{chosen}", share(sum(zero), repeats), share(sum(half), repeats)


def main(repeats: int) -> None:
    """Simulate in a fixed order, with a fixed seed."""
    random.seed(1)
    rows = [*trials(repeats, SHARED.of_run(1), "shared CPU, run of 1 cell")]
    rows += trials(repeats, SHARED.of_run(93), "shared CPU, run of 93 cells")
    rows += trials(repeats, DEDICATED, "accelerator, run of 1 cell")
    write_table("error_rates/trials", TRIALS, rows)
    rows = [*alarms(repeats, SHARED.of_run(93), "shared CPU")]
    rows += alarms(repeats, DEDICATED.of_run(93), "accelerator")
    write_table("error_rates/stored", STORED, rows)
    write_table("error_rates/prior_runs", PRIOR, choices(repeats))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
