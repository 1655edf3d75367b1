"""Whether the exact metrics depend on the CPU's instruction sets: python benchmarks/portable.py [-k EXPRESSION]

Measures the cells of the default grid three times, with environment variables that ask torch and oneDNN for AVX2, for
AVX-512 and for nothing, and prints every exact metric that differs. With the portable kernels none does, since
perfsuite overrides the variables. With --bare the variables count, which shows what would differ. Exit code 1 if
anything differs.
"""

import argparse
import os
import sys
from unittest import mock

from test_cells import test_cell

from perfsuite.catalog.cell import cells_meant, parse_cell
from perfsuite.catalog.registry import Catalog
from perfsuite.run.runner import Runner, Settings

WAYS = {
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
    "avx512": {"ATEN_CPU_CAPABILITY": "avx512", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"},
    "unset": {},
}


def exact(measurement, metrics):
    """Every exact metric's value, parts and ranks; for a cell that does not run, the reason."""
    if measurement.failure:
        return {"outcome": f"{measurement.outcome}: {measurement.failure.message}"}
    readings = measurement.readings
    return {
        f"{name}.{field}": getattr(readings[name], field)
        for name, metric in metrics.items()
        if metric.hold == "exact" and name in readings
        for field in ("value", "parts", "ranks")
    }


def measure(cells, catalog, variables):
    """Each cell's exact metrics under the environment variables."""
    for name in {name for way in WAYS.values() for name in way}:
        os.environ.pop(name, None)
    os.environ.update(variables)
    runner = Runner(catalog, Settings(steps=1, warmup=0))
    try:
        return {cell.id: exact(runner.measure(cell), catalog.all("metric")) for cell in cells}
    finally:
        runner.close()


def main():
    """Measure three times, compare and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-k", default="", metavar="EXPRESSION", help="Some cells of the grid.")
    parser.add_argument("--bare", action="store_true", help="Let the environment variables count.")
    arguments = parser.parse_args()
    if arguments.bare:
        mock.patch("perfsuite.launch.servers.pinned", lambda variables, choice: dict(variables)).start()
        mock.patch("perfsuite.run.runner.kernel_set", lambda choice: "").start()
    catalog = Catalog()
    ids = [text for mark in test_cell.pytestmark for text in mark.args]
    wanted = cells_meant(arguments.k, ids, catalog)
    cells = [parse_cell(text, catalog) for text in ids if wanted(text)]
    found = {way: measure(cells, catalog, variables) for way, variables in WAYS.items()}
    first, *others = WAYS
    differing, readings = set(), 0
    for cell in cells:
        for field, value in found[first][cell.id].items():
            readings += 1
            for way in others:
                other = found[way][cell.id].get(field)
                if other != value:
                    differing.add(cell.id)
                    print(f"{cell.id}: {field} is {value} with {first}, {other} with {way}")
        if missing := [way for way in WAYS if found[way][cell.id].keys() != found[first][cell.id].keys()]:
            differing.add(cell.id)
            print(f"{cell.id}: {', '.join(missing)} has other metrics than {first}")
        if "outcome" in found[first][cell.id]:
            print(f"{cell.id}: {found[first][cell.id]['outcome']}")
    print(f"{len(cells)} cells, {readings} exact numbers, {len(WAYS)} ways: {len(differing)} cells differ.")
    return int(bool(differing))


if __name__ == "__main__":
    sys.exit(main())
