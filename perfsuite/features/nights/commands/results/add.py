"""``perfsuite results add``: put the results of reports into monthly files."""

import argparse
import itertools
from pathlib import Path

from perfsuite.cli.report_options import files_of, say_missing
from perfsuite.errors import UsageError
from perfsuite.features.nights.row import MONTH, read, write_months
from perfsuite.system.units import show_several

HELP = "Add the results of reports to monthly files; a second time changes nothing."


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    text = "Reports of pytest --perf-report, monthly files of another folder, or folders of them."
    parser.add_argument("reports", type=Path, nargs="+", metavar="REPORT", help=text)
    parser.add_argument("--into", type=Path, required=True, metavar="DIR", help="The folder of the monthly files.")


def run(arguments: argparse.Namespace) -> int:
    """Read everything first, so that a bad report leaves all files as they were; print the files that changed."""
    into: Path = arguments.into
    if into.exists() and not into.is_dir():
        raise UsageError(f"--into names {into}, which is a file: name a folder.")
    files = list(itertools.chain.from_iterable(map(files_of, arguments.reports)))
    rows = [row for path in files for row in read(path)]
    incomplete = say_missing(file for file in files if not MONTH.fullmatch(file.name))
    changed = write_months(rows, into)
    for path in changed:
        print(path)
    told, written = show_several(len(rows), "result"), show_several(len(changed), "monthly file")
    print(f"{told} of {show_several(len(files), 'file')}: {written} changed.")
    return 1 if incomplete else 0
