"""Does a long run find what a step leaves, and is it green where a step leaves nothing?

    python -u benchmarks/leaks.py [--runs N] [--steps N] [--hogs K] [--only CASE …] [--cells CELL …]

Each run measures a cell of which a fault keeps 1 KiB or a file of every step (tests/support/faults.py), or nothing,
next to K busy loops. It is judged against the first run of its cell that keeps nothing, which is not in the table. Each
run is appended to benchmarks/data/leaks.jsonl. At the end, all runs are written into docs/data/leaks.csv. A run takes
half a minute to some minutes.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from repeat import HOG
from result_tables import write_table

from perfsuite.catalog.cell import parse_cell
from perfsuite.catalog.registry import Catalog
from perfsuite.compare.judge import judge
from perfsuite.records import codec
from perfsuite.records.baseline import Baseline
from perfsuite.records.formats import FORMAT, timestamp
from perfsuite.records.measurement import Measurement
from perfsuite.records.record import Record
from perfsuite.records.verdict import RED
from perfsuite.run.runner import Runner, Settings

HERE = Path(__file__).parent
DATA = HERE / "data" / "leaks.jsonl"
FAULTS = HERE.parent / "tests" / "support"
CELLS = ("gpt2_tiny-single-cpu_x1", "gpt2_tiny-fsdp2-cpu_x2")
COLUMNS = ("each step keeps", "cell", "red for it", "line named", "red for another", "nothing red", "n", "load")
CASES = {  # what a step leaves → the fault, and the metric that must find it
    "nothing": ("", ""),
    "a tensor of 1 KiB": ("hoards_a_tensor", "kept_tensor_bytes"),
    "a Python object of 1 KiB": ("hoards_python", "kept_blocks"),
    "1 KiB of malloc": ("hoards_malloc", "kept_host_bytes"),
    "an open file": ("hoards_files", "kept_files"),
}


class LeakRun(Record, frozen=True, kw_only=True):
    """One long run: its status, the metrics that were red, whether one of them named the line of the leak, and the
    machine's load (of one minute, on so many cores).
    """

    date: str
    case: str
    cell: str
    steps: int
    status: str
    red: list[str]
    named: bool
    load: float
    cores: int
    seconds: float


def judged(case: str, measured: Measurement, good: Measurement, steps: int, catalog: Catalog) -> LeakRun:
    """What a run says, next to a good one."""
    strategy = parse_cell(measured.cell, catalog).strategy
    baseline = Baseline(format=FORMAT, cell=good.cell, date=timestamp(), commit="", measurement=good)
    verdict = judge(measured, baseline, catalog.metrics(strategy.engine.process), strategy=strategy.name)
    red = [line.metric for line in verdict.lines if line.status in RED]
    return LeakRun(
        date=timestamp(),
        case=case,
        cell=measured.cell,
        steps=steps,
        status=verdict.status,
        red=red,
        named=any("faults.py" in place for name in red for place in measured.readings[name].suspects),
        load=float(measured.launches[0].conditions["load_1min"]),
        cores=measured.machine.cores,
        seconds=measured.wall_seconds,
    )


def table(runs: Sequence[LeakRun]) -> Iterator[tuple[object, ...]]:
    """One row for each case and cell."""
    for case, (_, metric) in CASES.items():
        for cell in sorted({one.cell for one in runs if one.case == case}):
            made = [one for one in runs if (one.case, one.cell) == (case, cell)]
            loads = [one.load for one in made]
            found = sum(metric in one.red for one in made) if metric else "-"
            named = sum(one.named for one in made) if metric else "-"
            other = sum(one.status in RED and metric not in one.red for one in made)
            green = sum(one.status not in RED for one in made)
            yield case, cell, found, named, other, green, len(made), f"{min(loads):.1f} to {max(loads):.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--hogs", type=int, default=2)
    parser.add_argument("--only", nargs="*", choices=list(CASES), default=list(CASES))
    parser.add_argument("--cells", nargs="*", default=list(CELLS))
    arguments = parser.parse_args()
    catalog = Catalog()
    cells = [parse_cell(name, catalog) for name in arguments.cells]
    runner = Runner(catalog, Settings(steps=3, warmup=1, long=arguments.steps, import_path=(str(FAULTS),)))
    hogs = [subprocess.Popen([sys.executable, "-c", HOG, "0"]) for _ in range(arguments.hogs)]
    try:
        good = {cell.id: runner.measure(cell) for cell in cells}
        for number in range(arguments.runs):
            for case in arguments.only:
                for cell in cells:
                    faults = [f"faults:{CASES[case][0]}"] if CASES[case][0] else []
                    measured = runner.measure(replace(cell, faults=tuple(faults)))
                    run = judged(case, measured, good[cell.id], arguments.steps, catalog)
                    with DATA.open("a") as file:
                        print(codec.encode_line(run), file=file)
                    print(
                        f"run {number + 1}, {case}, {cell.id}: {run.status}, red: {' '.join(run.red) or 'nothing'}; "
                        f"{'named' if run.named else 'no line named'}; {run.seconds:.0f} s at load {run.load}",
                        flush=True,
                    )
    finally:
        runner.close()
        for hog in hogs:
            hog.kill()
            hog.wait()
    print(write_table("leaks", COLUMNS, table(codec.read_lines(DATA, LeakRun))))


if __name__ == "__main__":
    main()
