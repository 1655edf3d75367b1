"""How many injected steps the dashboard finds, and how often it finds one that is none.

Simulates 400 nights of 100 cells on one machine. 30 times step by 5 to 20 %, and 10 sizes. `--write` puts the table
into docs/data/nights/change_points.csv. `--otava PYTHON` also runs apache-otava on the same series, in a Python that
has it:

    uv venv otava && uv pip install --python otava/bin/python apache-otava
"""

import argparse
import json
import math
import random
import statistics
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from result_tables import write_table

from perfsuite.features.nights import night_steps as steps
from perfsuite.system.units import show_ratio

NIGHTS, CELLS, TIMED, SIZED = 400, 100, 30, 10
MONTH = 365.25 / 12  # nights
AFTER = (4, 5, 6, 7, 10, 14)  # nights after a step at which it is looked for
LATEST = AFTER[-1]
EDGE = LATEST  # nights before the first and after the last step
COLUMNS = ("noise of a night", "method", "at the right commit", "within two", "false flags", "nights until flagged")
OTAVA = """
import json, sys
from otava.series import AnalysisOptions, Metric, Series
found = []
for values in json.load(sys.stdin):
    series = Series("", None, list(range(len(values))), {"time": Metric(1, 1.0)}, {"time": values}, {})
    changes = series.analyze(AnalysisOptions()).change_points["time"]
    found.append([int(change.index) for change in changes])
json.dump(found, sys.stdout)
"""


@dataclass(frozen=True)
class Noise:
    """A class of machines. ``spread`` is the relative standard deviation of a usual night of the median cell."""

    name: str
    spread: float


NOISES = (Noise("accelerator of our own", 0.006), Noise("quiet CPU", 0.012), Noise("shared CPU", 0.03))


@dataclass(frozen=True)
class Night:
    """The series of one metric of one cell; ``at`` is the first night of its step, None for none."""

    values: list[float]
    at: int | None


def drift(dice: random.Random) -> list[float]:
    """What the machine does to all of its cells: seasons of 1 % and a walk."""
    walk, walked, phase = 0.0, [], dice.uniform(0, 2 * math.pi)
    for night in range(NIGHTS):
        walk += dice.gauss(0, 0.0005)
        walked.append(walk + 0.005 * math.sin(2 * math.pi * night / 365.25 + phase))
    return walked


def time_series(dice: random.Random, noise: Noise, machine: Sequence[float], stepped: bool) -> Night:
    """Nights that resemble their neighbours, of which some weeks are noisier and some nights far too slow."""
    spread = noise.spread * math.exp(dice.gauss(0, 0.3))
    at = dice.randrange(EDGE, NIGHTS - EDGE) if stepped else None
    size = math.log1p(dice.uniform(0.05, 0.20)) * dice.choice((1, 1, -1))
    base, last, weekly, values = dice.uniform(0.02, 2.0), 0.0, 1.0, []
    for night in range(NIGHTS):
        if night % 7 == 0:
            weekly = 2.5 if dice.random() < 0.05 else dice.uniform(0.8, 1.2)
        last = 0.3 * last + math.sqrt(1 - 0.3**2) * dice.gauss(0, spread)
        value = machine[night] + last * weekly
        if dice.random() < 0.02:
            value += 0.03 + dice.expovariate(1 / 0.08)
        values.append(base * math.exp(value + (size if at is not None and night >= at else 0.0)))
    return Night(values, at)


def size_series(dice: random.Random, stepped: bool) -> Night:
    """Bytes, which repeat themselves."""
    at = dice.randrange(EDGE, NIGHTS - EDGE) if stepped else None
    base = dice.randrange(10**6, 10**10)
    moved = round(base * (1 + dice.uniform(0.05, 0.20) * dice.choice((1, 1, -1))))
    return Night([moved if at is not None and night >= at else base for night in range(NIGHTS)], at)


def simulate(seed: int, noise: Noise) -> tuple[list[Night], list[Night]]:
    """The times and the sizes of all cells; which ones step is chance."""
    dice = random.Random(f"{seed} {noise.name}")
    machine = drift(dice)
    order = dice.sample(range(CELLS), CELLS)
    times = [time_series(dice, noise, machine, order[cell] < TIMED) for cell in range(CELLS)]
    return times, [size_series(dice, order[cell] >= CELLS - SIZED) for cell in range(CELLS)]


@dataclass
class Score:
    """``right`` steps were flagged at their night, ``near`` at most two nights off; ``false`` flags are no step's.

    ``delays`` are the nights from each step until it was flagged, infinite if that took more than `LATEST`.
    """

    steps: int = 0
    right: int = 0
    near: int = 0
    false: int = 0
    months: float = 0.0
    delays: tuple[float, ...] = ()

    def add(self, night: Night, flags: Sequence[int]) -> None:
        """One series. Of several flags near a step, the nearest is its flag and the others are false."""
        self.months += len(night.values) / MONTH
        if night.at is not None:
            self.steps += 1
            off = min((abs(flag - night.at) for flag in flags), default=NIGHTS)
            self.right += off == 0
            self.near += off <= 2
            self.false += len(flags) - (off <= 2)
        else:
            self.false += len(flags)

    def row(self, name: str) -> tuple[str, ...]:
        """As a row of the table."""
        shares = [show_ratio(part / self.steps) for part in (self.right, self.near)]
        usual = statistics.median(self.delays) if self.delays else math.nan
        nights = "" if math.isnan(usual) else f"more than {LATEST}" if math.isinf(usual) else f"{usual:g}"
        return name, *shares, f"{1000 * self.false / self.months:.1f}", nights


def ours(values: Sequence[float]) -> list[int]:
    return [step.at for step in steps.noisy_steps(values)]


def exact(values: Sequence[float]) -> list[int]:
    return [step.at for step in steps.exact_steps(values)]


METHODS: dict[str, Callable[[Sequence[float]], list[int]]] = {
    "perfsuite": ours,
    "asv's fit alone": lambda values: steps.potts([math.log(value) for value in values]),
}


def otava(python: str, series: Sequence[Night]) -> list[list[int]]:
    """apache-otava's flags with its default options."""
    text = json.dumps([one.values for one in series])
    done = subprocess.run([python, "-c", OTAVA], input=text, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def one(task: tuple[int, Noise, str, bool]) -> dict[str, Score]:
    """The scores of all methods on one simulation."""
    seed, noise, python, alone = task
    times, sizes = simulate(seed, noise)
    methods = {"perfsuite": ours} if alone else METHODS
    scores = {name: Score() for name in methods}
    for name, method in methods.items():
        for night in times:
            scores[name].add(night, method(night.values))
    scores["perfsuite"].delays = tuple(delay(night) for night in times if night.at is not None)
    if python:
        scores["apache-otava"] = Score()
        for night, flags in zip(times, otava(python, times), strict=True):
            scores["apache-otava"].add(night, flags)
    scores["exact metrics"] = Score()
    for night in sizes:
        scores["exact metrics"].add(night, exact(night.values))
    return scores


def delay(night: Night) -> float:
    """The nights after its step until a series that ends there is flagged near it."""
    assert night.at is not None
    for nights in AFTER:
        if any(abs(flag - night.at) <= 2 for flag in ours(night.values[: night.at + nights])):
            return nights
    return math.inf


def table(seeds: int, python: str, workers: int, alone: bool = False) -> Iterator[tuple[str, ...]]:
    """The rows of the table; every simulation's flags are added up."""
    tasks = [(seed, noise, python, alone) for noise in NOISES for seed in range(seeds)]
    totals: dict[tuple[str, str], Score] = {}
    with ProcessPoolExecutor(workers) as pool:
        for (_, noise, *_), scores in zip(tasks, pool.map(one, tasks), strict=True):
            for name, score in scores.items():
                total = totals.setdefault((noise.name, name), Score())
                for field in vars(score):
                    setattr(total, field, getattr(total, field) + getattr(score, field))
    for noise in NOISES:
        for name in dict.fromkeys(name for _, name in totals):
            yield f"{noise.name}, ±{100 * noise.spread:g} %", *totals[noise.name, name].row(name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, metavar="N", help="Simulations of each kind of machine (5).")
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="Processes (2).")
    parser.add_argument("--alone", action="store_true", help="Leave out the other methods.")
    parser.add_argument("--otava", default="", metavar="PYTHON", help="A Python that has apache-otava.")
    parser.add_argument("--write", action="store_true", help="Write the table of docs/.")
    arguments = parser.parse_args()
    rows = list(table(arguments.seeds, arguments.otava, arguments.workers, arguments.alone))
    for row in rows:
        print(*row)
    if arguments.write:
        write_table("nights/change_points", COLUMNS, rows)


if __name__ == "__main__":
    main()
