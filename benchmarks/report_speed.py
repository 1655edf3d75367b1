"""What commands take for a report of many cells: the verdicts of baselines that repeat, every tenth of them red.

`python benchmarks/report_speed.py [CELLS]` writes a report of 10,000 cells, and times `perfsuite summary`, its page,
and the monthly files with a query. `--write` puts the table into docs/data/nights/report_speed.csv.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
from judge_speed import judgements, known_baselines
from result_tables import write_table

from perfsuite.records import codec
from perfsuite.records.result import Result, RunBegin, RunEnd

COMMANDS = {
    "summary": ("summary", "--brief", "report.jsonl"),
    "summary, with its page": ("summary", "--html", "page.html", "report.jsonl"),
    "one cell of it": ("summary", "-k", "CELL", "report.jsonl"),
    "into a monthly file": ("results", "months", "--add", "report.jsonl"),
    "a query": ("results", "months", "--query", "SELECT status, count(*) FROM results GROUP BY status"),
}


def write_report(path: Path, count: int) -> str:
    """A run of so many cells; returns the id of the last one."""
    begin = "2026-11-22T02:00:00+00:00"
    cells = [f"model{number}-ddp-cpu_x2" for number in range(count)]
    with path.open("w") as file:
        print(codec.encode_line(RunBegin(begin=begin, selected=cells)), file=file)
        for cell, judged in zip(cells, judgements(known_baselines(), count), strict=True):
            result = Result(
                measurement=msgspec.structs.replace(judged.measured, cell=cell),
                baseline=judged.baseline,
                verdict=msgspec.structs.replace(judged.verdict(), cell=cell),
                date=begin,
                commit="0123456789ab",
                test=cell,
            )
            print(codec.encode_line(result), file=file)
        print(codec.encode_line(RunEnd(end=begin, exit_status=1)), file=file)
    return cells[-1]


def cost(words: list[str], folder: Path) -> tuple[float, float]:
    """Wall seconds of a command, and the most memory of its process in bytes."""
    begin = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "perfsuite.cli.main", *words], cwd=folder, stdout=subprocess.PIPE)
    assert process.stdout
    process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode in (0, 1), words
    return time.perf_counter() - begin, used.ru_maxrss * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cells", type=int, nargs="?", default=10_000, help="Cells of the report (10000).")
    parser.add_argument("--write", action="store_true", help="Write the table of docs/.")
    arguments = parser.parse_args()
    lines = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        last = write_report(folder / "report.jsonl", arguments.cells)
        size = (folder / "report.jsonl").stat().st_size
        lines.append((f"the report of {arguments.cells:,} cells", "", f"{size / 1e6:,.0f} MB"))
        for name, words in COMMANDS.items():
            seconds, most = cost([last if word == "CELL" else word for word in words], folder)
            lines.append((name, f"{seconds:.1f} s", f"{most / 1e6:,.0f} MB"))
        lines.append(("the page", "", f"{(folder / 'page.html').stat().st_size / 1e6:.1f} MB"))
    for line in lines:
        print(*line)
    if arguments.write:
        write_table("nights/report_speed", ("what", "wall time", "memory or size"), lines)


if __name__ == "__main__":
    main()
