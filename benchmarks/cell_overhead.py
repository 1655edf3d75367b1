"""What a cell costs beyond its steps: python benchmarks/cell_overhead.py [CELL] [--repeat N]

Prints, for a cold rank server and for a warm one, the whole time of the cell beside the engine's own initialisation
and its steps. The rest is perfsuite's: forking, rendezvous, gathering, ending.
"""

import argparse
import statistics

from rich.console import Console
from rich.table import Table

from perfsuite.catalog.registry import Catalog
from perfsuite.cell import parse_cell
from perfsuite.runner import Runner, Settings
from perfsuite.units import show_seconds


def measure(runner, cell):
    """Whole seconds of the cell, and the slowest rank's seconds of engine and steps."""
    measurement = runner.measure(cell)
    if measurement.failure:
        raise SystemExit(measurement.failure.message)
    phases = measurement.phases_seconds
    return measurement.wall_seconds, phases["build"] + phases["prepare"], phases["steps"]


def main():
    """Measure the cell cold once, then warm, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cell", nargs="?", default="t5_tiny-zero3+bf16-cpu_x2")
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    catalog = Catalog()
    cell = parse_cell(arguments.cell, catalog)
    runner = Runner(catalog, Settings())
    try:
        cold = measure(runner, cell)
        warm = [measure(runner, cell) for _ in range(arguments.repeat)]
    finally:
        runner.close()
    warm = tuple(statistics.median(column) for column in zip(*warm, strict=True))
    table = Table("server", "whole", "engine", "steps", "the rest", title=cell.id)
    for name, (whole, engine, steps) in (("cold", cold), (f"warm, median of {arguments.repeat}", warm)):
        table.add_row(name, *map(show_seconds, (whole, engine, steps, whole - engine - steps)))
    Console().print(table)
    print(f"warm / cold: {warm[0] / cold[0]:.2f}")


if __name__ == "__main__":
    main()
