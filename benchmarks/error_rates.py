"""Simulates how often stored times call for a trial, with noise between runs; grid_error_rates.py simulates trials.

    python benchmarks/error_rates.py [REPEATS] > docs/error_rates.md        (2000 by default: some seconds)

PRIOR_RUNS is in a table here, next to its alternatives. Noise is normal or, as on a shared machine, Student's t with
3 degrees of freedom.
"""

import math
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from perfsuite.compare import noise
from perfsuite.compare.noise import Pool
from perfsuite.compare.terms import DEDICATED, SHARED, TIMED, Terms
from perfsuite.compare.timing import RULED_OUT

Draw = Callable[[], float]


def normal() -> float:
    return random.gauss(0, 1)


def heavy() -> float:
    """Student's t with 3 degrees of freedom, scaled to a standard deviation of 1."""
    return random.gauss(0, 1) / math.sqrt(random.gammavariate(1.5, 2) / 3) / math.sqrt(3)


def alarm(effect: float, runs: int, spread: float, terms: Terms, draw: Draw) -> tuple[bool, bool]:
    """Whether one run so much slower is open after a change, and whether it is beyond its runs without one."""
    pool = Pool.of([spread * draw() for _ in range(runs)], terms.spread)
    slower = math.log1p(effect) + spread * draw() - pool.mean
    return slower + pool.reach(RULED_OUT) > math.log1p(terms.tolerance), slower > pool.reach(1 - terms.alarm_rate)


def share(hits: int, of: int) -> str:
    return f"{100 * hits / of:.1f} %"


def alarms(repeats: int, terms: Terms, title: str) -> None:
    print(f"\n## Stored times: {title}, a run of {terms.cells} cells\n")
    print(
        "| runs | spread | noise | open after a change: +0 % | +3 % | +5 % "
        "| open without one: +0 % | +50 % | in the whole run |"
    )
    print("|---" * 9 + "|")
    for runs in (1, 3, 10, 20):
        for spread in (terms.spread / 2, terms.spread, 2 * terms.spread):
            for draw in (normal, heavy):
                made = {
                    e: [alarm(e, runs, spread, terms, draw) for _ in range(repeats)] for e in (0.0, 0.03, 0.05, 0.5)
                }
                called = [share(sum(one for one, _ in made[e]), repeats) for e in (0.0, 0.03, 0.05)]
                beyond = [sum(one for _, one in made[e]) for e in (0.0, 0.5)]
                whole = beyond[0] / repeats * TIMED * terms.cells
                print(
                    f"| {runs} | {100 * spread:g} % | {draw.__name__} | {' | '.join(called)} "
                    f"| {share(beyond[0], repeats)} "
                    f"| {share(beyond[1], repeats)} | {whole:.2f} |"
                )


@contextmanager
def constant(module: object, name: str, value: float) -> Iterator[None]:
    """The module with another value of the constant."""
    kept = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, kept)


def choices(repeats: int) -> None:
    """The results of other values of a constant, for runs that spread by 10 %."""
    print("\n## A constant and its alternatives")
    print("\nPRIOR_RUNS: runs that spread by 10 %, three in the pool, and one more.\n")
    print("| PRIOR_RUNS | open without a change, at 0 | at +50 % |\n|---|---|---|")
    for value in (1, 4, 10):
        with constant(noise, "PRIOR_RUNS", value):
            zero, half = ([alarm(e, 3, 0.1, SHARED, normal)[1] for _ in range(repeats)] for e in (0.0, 0.5))
        print(
            f"| {value}{' (chosen)' * (value == noise.PRIOR_RUNS)} "
            f"| {share(sum(zero), repeats)} | {share(sum(half), repeats)} |"
        )


def main(repeats: int) -> None:
    random.seed(1)
    print("# How often stored times err\n")
    print(f"Simulated by `python benchmarks/error_rates.py {repeats}`; each share is of that many.")
    alarms(repeats, SHARED.of_run(93), "shared CPU")
    alarms(repeats, DEDICATED.of_run(93), "dedicated accelerator")
    choices(repeats)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
