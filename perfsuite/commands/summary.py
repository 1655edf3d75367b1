"""``perfsuite summary``: reports of ``pytest --perf-report`` as Markdown, for a job's summary or a comment."""

import argparse
import itertools
import re
import sys
from pathlib import Path

from perfsuite.commands._base import add_catalog, catalog_of
from perfsuite.errors import FileError
from perfsuite.records import codec
from perfsuite.records.result import PredictedResult, Result
from perfsuite.report.markdown import SUCCESS, passes, render_markdown

HELP = "The verdicts of reports as Markdown; red ones fail."
_CELL = re.compile(r"[^-\s]+-[^-\s]+-[^-\s]+(-[a-z]\d+)*")


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    text = "Reports of pytest --perf-report, with measured and predicted cells, or folders that may hold some."
    parser.add_argument("reports", type=Path, nargs="*", metavar="REPORT.jsonl", help=text)
    text = f"How the run itself ended, in GitHub's words ({SUCCESS}): anything else is red, whatever the reports say."
    parser.add_argument("--conclusion", default=SUCCESS, metavar="WORD", help=text)
    add_catalog(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print it; 1 if the run failed, a cell is red or was not compared, or there is none."""
    catalog = catalog_of(arguments)
    measured: list[Result] = []
    predicted: list[PredictedResult] = []
    for report in itertools.chain.from_iterable(map(_files, arguments.reports)):
        here, not_here = codec.read_report(report)
        for name in [*(one.measurement.cell for one in here), *(one.prediction.cell for one in not_here)]:
            if not _CELL.fullmatch(name):  # the model may be in a conftest that is not here, but the form must be right
                raise FileError(f"{report} has a cell named {name[:80]!r}: write model-strategy-hardware.")
        measured += here
        predicted += not_here
    metrics = catalog.all("metric").values()
    sys.stdout.write(render_markdown(measured, predicted, metrics, arguments.conclusion))
    return 0 if passes(measured, predicted, arguments.conclusion) else 1


def _files(path: Path) -> list[Path]:
    """The file, or all reports below the folder. A link in a stranger's artifact may point anywhere."""
    if not path.is_dir():
        return [path]
    return sorted(file for file in path.rglob("*.jsonl") if file.is_file() and not file.is_symlink())
