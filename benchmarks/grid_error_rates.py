"""Simulates how often a grid trial errs: python benchmarks/grid_error_rates.py [RUNS]

Writes docs/data/error_rates/grid.csv and few.csv.

10,000 runs of 24 cells by default. A pair spreads by 1 %. To that comes the error of the median of its steps. It is 1 %
on average, differs from cell to cell by a factor of 2, and is known as well as 30 steps tell. The noise is normal or,
as on a shared machine, Student's t with 3 degrees of freedom. Pairs that share their rank servers may share a part of
it.
"""

import math
import multiprocessing
import random
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from result_tables import write_table

from perfsuite.compare.grid_groups import ALL, CELL, Effect, groups_of
from perfsuite.compare.pooled_pairs import PER_SERVERS, Difference
from perfsuite.compare.pooling import LOOKS, Pool, open_cells
from perfsuite.compare.terms import TIMED
from perfsuite.records.verdict import Status

ENGINES = ("single", "ddp", "zero1", "zero2", "zero3", "fsdp1", "fsdp2", "tp")
FAMILIES = ("gpt2", "t5", "llama")
TOLERANCE, ERROR = 0.03, 0.01 / TIMED
SPREAD, OF_STEPS, OF_CELLS = 0.01, 0.01, 0.7
STEPS = 30
MOST_PAIRS = LOOKS[-1]


def traits() -> dict[str, list[tuple[str, str]]]:
    """24 cells: every engine with every family, and some techniques."""
    cells = {}
    for at, engine in enumerate(ENGINES):
        for family in FAMILIES:
            package = "deepspeed" if engine.startswith("zero") else "torch"
            technique = ("bf16", "ckpt", "acc2", "")[(at + len(family)) % 4]
            of_cell = [("package", package), ("engine", engine), ("family", family)]
            cells[f"{family}-{engine}"] = of_cell + ([("technique", technique)] if technique else [])
    return cells


CELLS = traits()
GROUPS = groups_of(CELLS)
ONE_ENGINE = [cell for cell in CELLS if cell.endswith("-zero3")]


@dataclass(frozen=True)
class Case:
    """``delay`` of the cells; ``right`` says whether the effects name them."""

    name: str
    delays: dict[str, float]
    right: Callable[[list[Effect]], bool]


def red(effects: list[Effect]) -> list[Effect]:
    return [effect for effect in effects if effect.status == Status.REGRESSED]


def names_all(effects: list[Effect]) -> bool:
    return any(group.kind == ALL for effect in red(effects) for group in effect.groups)


def names_engine(effects: list[Effect]) -> bool:
    return any(group.name == "zero3" for effect in red(effects) for group in effect.groups)


def names_cell(effects: list[Effect]) -> bool:
    return any(group.kind == CELL and group.name == ONE_ENGINE[0] for one in red(effects) for group in one.groups)


CASES = (
    Case("no change", {}, lambda effects: not red(effects)),
    Case("+1 % in all cells", dict.fromkeys(CELLS, 0.01), names_all),
    Case("+3 % in the cells of one engine", dict.fromkeys(ONE_ENGINE, 0.03), names_engine),
    Case("+5 % in one cell", {ONE_ENGINE[0]: 0.05}, names_cell),
)


def normal() -> float:
    return random.gauss(0, 1)


def heavy() -> float:
    """Student's t with 3 degrees of freedom, scaled to a standard deviation of 1."""
    return random.gauss(0, 1) / math.sqrt(random.gammavariate(1.5, 2) / 3) / math.sqrt(3)


def run(case: Case, draw: Callable[[], float], shared: float) -> tuple[list[Effect], int]:
    """What a grid trial says, and the pairs that it took. ``shared`` is the part of a pair's variance that pairs of the
    same rank servers share.
    """
    of_steps = {cell: OF_STEPS * math.exp(random.gauss(0, OF_CELLS)) for cell in CELLS}
    differences: dict[str, list[Difference]] = {cell: [] for cell in CELLS}
    waiting, pool = list(CELLS), None
    for number in range(1, MOST_PAIRS + 1):
        random.shuffle(waiting)
        for at, cell in enumerate(waiting):
            if at % PER_SERVERS == 0:
                of_server = draw()
            noise = math.sqrt(shared) * of_server + math.sqrt(1 - shared) * draw()
            by = math.log1p(case.delays.get(cell, 0.0)) + SPREAD * noise + of_steps[cell] * draw()
            known = math.sqrt(random.gammavariate(STEPS / 2, 2 / STEPS))
            differences[cell].append(Difference(by, of_steps[cell] * known))
        if number in LOOKS:
            pool = Pool(differences, GROUPS, TOLERANCE, ERROR)
            waiting = open_cells([pool])
            if not waiting:
                break
    assert pool is not None
    return pool.effects, sum(map(len, differences.values()))


def chunk(arguments: tuple[int, str, float, int, int]) -> tuple[Counter[str], list[int]]:
    number, noise, shared, runs, seed = arguments
    random.seed(seed)
    counts: Counter[str] = Counter()
    pairs = []
    for _ in range(runs):
        effects, used = run(CASES[number], {"normal": normal, "heavy": heavy}[noise], shared)
        pairs.append(used)
        counts["right"] += CASES[number].right(effects)
        named = {cell for effect in red(effects) for cell in effect.cells}
        counts["red"] += bool(named)
        counts["false"] += bool(named - CASES[number].delays.keys())
    return counts, pairs


def of_few(count: int, delay: float, spread: float, draw: Callable[[], float]) -> tuple[str, int]:
    """What a question about so many cells says of the first one, which has the delay, and the pairs of that one."""
    names = [f"cell{number}" for number in range(count)]
    groups, delays = groups_of({name: [] for name in names}), {names[0]: math.log1p(delay)}
    differences: dict[str, list[Difference]] = {name: [] for name in names}
    waiting, pool = names, None
    for number in range(1, MOST_PAIRS + 1):
        for name in waiting:
            differences[name].append(Difference(delays.get(name, 0.0) + spread * draw(), 0.0))
        if number in LOOKS:
            pool = Pool(differences, groups, TOLERANCE, ERROR)
            waiting = [name for name in open_cells([pool]) if pool.of(name).status != Status.REGRESSED]
            if not waiting:
                break
    assert pool is not None
    return pool.of(names[0]).status, len(differences[names[0]])


FEW = ("cells", "pairs spread by", "noise", "red at 0", "+3 %", "+5 %", "ok at 0", "pairs at 0", "at +5 %")
GRID = ("what changed", "noise", "shared by servers", "red", "named right", "wrongly red", "pairs, median")
PARTS = 20


def few(runs: int) -> Iterator[tuple[str, ...]]:
    """Questions of few cells, which share no trait; the delay is in one of them, and the shares are about that one."""
    random.seed(1)
    for count in (1, 2, 4, 11):
        for spread in (0.01, 0.02):
            for name, draw in (("normal", normal), ("heavy", heavy)):
                made = {by: [of_few(count, by, spread, draw) for _ in range(runs)] for by in (0.0, 0.03, 0.05)}
                shares = [sum(status == Status.REGRESSED for status, _ in made[by]) / runs for by in made]
                shares.append(sum(status == Status.OK for status, _ in made[0.0]) / runs)
                pairs = [f"{statistics.median(pairs for _, pairs in made[by]):g}" for by in (0.0, 0.05)]
                yield f"{count}", f"{100 * spread:g} %", name, *(f"{100 * share:.1f} %" for share in shares), *pairs


def grid(runs: int) -> Iterator[tuple[str, ...]]:
    """Runs of all cells, by what changed and how much of the noise pairs of the same servers share."""
    with multiprocessing.Pool() as pool:
        for number, case in enumerate(CASES):
            for noise in ("normal", "heavy"):
                for shared in (0.0, 0.33):
                    jobs = [(number, noise, shared, runs // PARTS, seed) for seed in range(PARTS)]
                    made = pool.map(chunk, jobs, chunksize=1)
                    counts: Counter[str] = sum((one for one, _ in made), Counter())
                    pairs = statistics.median(used for _, of_part in made for used in of_part)
                    total = runs // PARTS * PARTS
                    shares = [f"{100 * counts[name] / total:.2f} %" for name in ("red", "right", "false")]
                    yield case.name, noise, f"{100 * shared:g} %", *shares, f"{pairs:g}"


def main() -> None:
    """All, or the questions of few cells alone."""
    alone = sys.argv[1:2] == ["few"]
    given = sys.argv[2:] if alone else sys.argv[1:]
    runs = int(given[0]) if given else 10_000
    if not alone:
        write_table("error_rates/grid", GRID, grid(runs))
    write_table("error_rates/few", FEW, few(runs if alone else max(1, runs // 30)))


if __name__ == "__main__":
    main()
