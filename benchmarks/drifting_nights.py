"""How soon is a lasting change of a time reported, and how often none? Simulated histories of 60 nights.

    python benchmarks/drifting_nights.py        # 1,000 histories of each kind; writes docs/data/nights/drift.csv

Every night is compared with the pool and with the first runs, as `pytest --perf` does, and only good nights are added.
Nights spread by a normal distribution, or, as on a shared machine, by Student's t with 3 degrees of freedom.
"""

import math
import random
import sys
from collections.abc import Callable

from perfsuite.compare.drifting import drift_of, kept
from perfsuite.compare.noise import NoisePool
from perfsuite.compare.pool import WINDOW
from perfsuite.compare.terms import SHARED, Terms

NIGHTS = 60
STEP_AT = 20
SLOPES = (0.002, 0.005, 0.01, 0.015, 0.03)
STEPS = (0.03, 0.05, 0.10, 0.30)
SPREADS = (0.01, 0.03, 0.05)
PROMISED_NIGHTS = 25  # after a change is as large as promised() says
Change = Callable[[int], float]


def promised(spread: float, terms: Terms = SHARED) -> float:
    """The lasting change that is reported within PROMISED_NIGHTS: the tolerance, and four times the nights' spread."""
    return terms.tolerance + 4 * spread


def sloping(by: float) -> Change:
    """So much more each night."""
    return lambda night: by * night


def stepping(by: float) -> Change:
    """So much more from a night on."""
    return lambda night: math.log1p(by) * (night >= STEP_AT)


def history(dice: random.Random, spread: float, heavy: bool, change: Change, terms: Terms = SHARED) -> tuple[int, int]:
    """The nights of the first report of any kind, and of the first drift; NIGHTS if there is none."""
    levels: list[float] = []
    first = NIGHTS
    for night in range(NIGHTS):
        noise = dice.gauss(0, spread)
        if heavy:
            noise /= math.sqrt(dice.gammavariate(1.5, 2 / 3)) * math.sqrt(3)  # of the same variance
        level = noise + change(night)
        if drift_of([*levels, level], terms.tolerance):
            return min(first, night), night
        if levels:
            pool = NoisePool.of(levels, terms.spread)
            if level - pool.mean > max(pool.reach(1 - terms.alarm_rate), math.log1p(terms.tolerance)):
                first = min(first, night)
                continue  # it is not good, so it is not added
        levels = kept([*levels, level], WINDOW)
    return first, NIGHTS


def due(spread: float, change: Change) -> int:
    """The night by which the change must be reported; NIGHTS or more if there is none."""
    return (
        next((night for night in range(NIGHTS) if change(night) >= math.log1p(promised(spread))), NIGHTS)
        + PROMISED_NIGHTS
    )


def late_and_false(count: int, seed: int = 1) -> tuple[int, int, int, int]:
    """Histories that must be reported and those that were too late; histories without a change and false drifts."""
    dice, changed, late, equal, false = random.Random(seed), 0, 0, 0, 0
    kinds = [*map(sloping, SLOPES), *map(stepping, STEPS)]
    for number in range(count):
        spread, heavy = SPREADS[number % len(SPREADS)], number % 2 == 1
        if number % 5 == 0:
            equal += 1
            false += history(dice, spread, heavy, sloping(0))[1] < NIGHTS
            continue
        change = kinds[number % len(kinds)]
        by = due(spread, change)
        if by < NIGHTS:
            changed += 1
            late += history(dice, spread, heavy, change)[0] > by
    return changed, late, equal, false


def main() -> None:
    """Write a table: per spread and change, the night by which 95 of 100 histories are reported."""
    from result_tables import write_table  # a test imports this file alone

    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    changes = {"none": sloping(0)} | {f"+{100 * by:g} % a night": sloping(by) for by in SLOPES}
    changes |= {f"+{100 * by:g} % from night {STEP_AT} on": stepping(by) for by in STEPS}
    rows = []
    for name, change in changes.items():
        cells = []
        for spread in SPREADS:
            dice = random.Random(1)
            nights = sorted(history(dice, spread, number % 2 == 1, change) for number in range(count))
            if name == "none":
                cells.append(f"{100 * sum(drift < NIGHTS for _, drift in nights) / count:.1f} % drift")
            else:
                by = nights[int(0.95 * count)][0]
                share = sum(first < NIGHTS for first, _ in nights) / count
                cells.append(f"night {by}" if by < NIGHTS else f"{100 * share:.0f} % of histories")
        rows.append((name, *cells))
    columns = ("change", *(f"±{100 * spread:g} % a night" for spread in SPREADS))
    print(write_table("nights/drift", columns, rows))


if __name__ == "__main__":
    main()
