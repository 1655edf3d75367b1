"""``perfsuite results``: results of many runs in monthly files, which git keeps and a query reads."""

import argparse
import itertools
from pathlib import Path

from perfsuite.cli.report_options import files_of, say_missing
from perfsuite.errors import UsageError
from perfsuite.features.nights.query import FIXED, TABLE, print_answer
from perfsuite.features.nights.row import MONTH, read, write_months
from perfsuite.system.units import show_several

HELP = "Keep the results of many runs in monthly files, and query them."
QUESTION = "history"
EXAMPLES = (
    "perfsuite results results --add report.jsonl",
    'perfsuite results results --query "SELECT cell, max(peak_memory_bytes) FROM results GROUP BY cell"',
)
PAGE = "site"


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="The folder of the monthly files.")
    what = parser.add_mutually_exclusive_group(required=True)
    text = "Reports of pytest --perf-report, monthly files of another folder, or folders of them."
    what.add_argument("--add", type=Path, nargs="+", metavar="REPORT", help=f"{text} A second time changes nothing.")
    text = f"One SELECT over the table {TABLE}. Its columns are the metrics and {FIXED}. 'DESCRIBE {TABLE}' has types."
    what.add_argument("--query", metavar="SQL", help=f"{text} It needs DuckDB.")


def run(arguments: argparse.Namespace) -> int:
    """Add, or print what the query asks for."""
    if arguments.query is None:
        return _add(arguments.add, arguments.folder)
    print_answer(arguments.query, arguments.folder)
    return 0


def _add(reports: list[Path], folder: Path) -> int:
    """Read everything first, so that a bad report leaves all files as they were; print the files that changed."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file: name the folder of the monthly files.")
    files = list(itertools.chain.from_iterable(map(files_of, reports)))
    rows = [row for path in files for row in read(path)]
    incomplete = say_missing(file for file in files if not MONTH.fullmatch(file.name))
    changed = write_months(rows, folder)
    for path in changed:
        print(path)
    told, written = show_several(len(rows), "result"), show_several(len(changed), "monthly file")
    print(f"{told} of {show_several(len(files), 'file')}: {written} changed.")
    return 1 if incomplete else 0
