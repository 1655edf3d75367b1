"""The cost of a cell in addition to its steps: python benchmarks/cell_overhead.py [CELL] [--launcher slurm]

Prints, for a cold and for a warm rank server, the whole time of the cell, its steps, and the rest: mostly imports on a
cold server; the engine's own initialisation; forking, rendezvous, counting, gathering, ending.
"""

import argparse
import statistics
from pathlib import Path

from rich.console import Console
from rich.table import Table

from perfsuite.catalog.cell import parse_cell
from perfsuite.catalog.project import read_project
from perfsuite.catalog.registry import Catalog
from perfsuite.launch.places import place_of
from perfsuite.run.runner import Runner, Settings
from perfsuite.system.units import show_seconds


def measure(runner, cell):
    """Seconds of the whole cell, of the slowest rank's steps, of all beyond them, and of its engine."""
    measurement = runner.measure(cell)
    if measurement.failure:
        raise SystemExit(measurement.failure.message)
    whole, phases = measurement.wall_seconds, measurement.phases_seconds
    return whole, phases["steps"], whole - phases["steps"], phases["build"] + phases["prepare"]


def main():
    """Measure the cell with a cold server and then with the same one, so many times, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cell", nargs="?", default="t5_tiny-zero3+bf16-cpu_x2")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--launcher", default="local", choices=["local", "slurm"])
    arguments = parser.parse_args()
    catalog = Catalog()
    cell = parse_cell(arguments.cell, catalog)
    found: dict[str, list[tuple[float, ...]]] = {"cold": [], "warm": []}
    for _ in range(arguments.repeat):
        runner = Runner(catalog, Settings(), places=place_of(arguments.launcher, read_project(Path.cwd()).slurm, print))
        try:
            for times in found.values():
                times.append(measure(runner, cell))
        finally:
            runner.close()
    table = Table("server", "whole", "steps", "beyond them", "of that the engine", title=cell.id)
    medians = {name: [statistics.median(column) for column in zip(*rows, strict=True)] for name, rows in found.items()}
    for name, seconds in medians.items():
        table.add_row(name, *map(show_seconds, seconds))
    Console().print(table)
    print(
        f"Medians of {arguments.repeat}. Beyond the steps, warm / cold: {medians['warm'][2] / medians['cold'][2]:.2f}"
    )


if __name__ == "__main__":
    main()
