"""How far pairs of launches of equal sides are apart, and which part of that their rank servers cause.

    python benchmarks/pair_spread.py [CELL …] [--servers N] [--pairs K]

Each of N pairs of rank servers launches each cell K times. The variance within servers and between them is that of a
one-way layout with random effects (Searle et al. 1992, "Variance components", section 3.6). On two idle cores, ten
servers with three pairs each had 13 to 33 % of a cell's between them, when each server had another hash seed. The last
line is the part that different cells of the same servers share, their intraclass correlation. With 14 servers, eight
cells of ZeRO-3 and another environment on one side it was -0.01 and 0.01 (step and processor time), and from 20 servers
at most 0.11 with 95 % confidence: OF_SERVERS of perfsuite/compare/pooling.py.
"""

import argparse
import itertools
import math
import random
import statistics
from collections.abc import Mapping, Sequence
from contextlib import closing

from perfsuite.catalog.cell import parse_cell
from perfsuite.catalog.registry import Catalog
from perfsuite.compare.paired_times import differences
from perfsuite.run.duet import measure_in_turns
from perfsuite.run.runner import Runner, Settings

CELLS = ("gpt2_tiny-single-cpu_x1", "gpt2_tiny-ddp-cpu_x2")
METRICS = ("step_time_seconds", "processor_time_seconds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cells", nargs="*", default=CELLS)
    parser.add_argument("--servers", type=int, default=10)
    parser.add_argument("--pairs", type=int, default=3)
    arguments = parser.parse_args()
    catalog = Catalog()
    found: dict[tuple[str, str], list[list[float]]] = {}
    for _ in range(arguments.servers):
        runners = [Runner(catalog, Settings(steps=100)) for _ in range(2)]
        with closing(runners[0]), closing(runners[1]):
            for name in arguments.cells:
                both = [parse_cell(name, catalog)] * 2
                order = [random.choice((0, 1)) for _ in range(arguments.pairs)]
                pairs = [measure_in_turns(runners, both, first, lambda *_: None, times_only=True) for first in order]
                for metric in METRICS:
                    made = [differences([a], [b], metric)[0] for a, b in pairs if metric in a.readings]
                    found.setdefault((name, metric), []).append(made)
    print("| cell | time | spread of a pair | within servers | between servers | part of the variance |")
    print("|---" * 6 + "|")
    for (name, metric), rows in found.items():
        within = statistics.fmean(statistics.variance(row) for row in rows)
        between = max(0.0, statistics.variance(map(statistics.fmean, rows)) - within / arguments.pairs)
        spreads = [f"{100 * one**0.5:.2f} %" for one in (within + between, within, between)]
        print(f"| {name} | {metric} | {' | '.join(spreads)} | {100 * between / (within + between):.0f} % |")
    for metric in METRICS:
        print(
            f"{metric}: different cells of the same servers share {100 * shared(found, metric):.0f} % of the variance"
        )


def shared(found: Mapping[tuple[str, str], Sequence[Sequence[float]]], metric: str) -> float:
    """The correlation of pairs of different cells with the same servers: the mean product of their differences, each
    relative to the root mean square of its cell.
    """
    cells = [rows for (_, name), rows in found.items() if name == metric]
    sizes = [math.sqrt(statistics.fmean(one**2 for row in rows for one in row)) for rows in cells]
    scaled = [[statistics.fmean(row) / size for row in rows] for rows, size in zip(cells, sizes, strict=True)]
    products = [x * y for one, other in itertools.combinations(scaled, 2) for x, y in zip(one, other, strict=True)]
    return statistics.fmean(products)


if __name__ == "__main__":
    main()
