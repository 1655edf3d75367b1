"""``perfsuite summary``: reports of ``pytest --perf-report`` as Markdown, for a job's summary or a comment."""

import argparse
import itertools
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from perfsuite.catalog.cell import cells_meant
from perfsuite.cli.report_options import files_of, say_missing_of
from perfsuite.cli.shared_options import add_html, add_select, add_shared, catalog_of, html_of
from perfsuite.errors import FileError, UsageError
from perfsuite.records import report_lines
from perfsuite.records.lean import Leaner
from perfsuite.records.report_lines import LinePlace
from perfsuite.records.result import CellResult
from perfsuite.settings.keys import CATALOG
from perfsuite.show.html.run_report import write_run
from perfsuite.show.text.markdown import (
    CONCLUSIONS,
    INCOMPLETE,
    INTERRUPTED,
    KILLED,
    SUCCESS,
    UNREADABLE,
    is_red,
    passes,
    render_brief,
    render_markdown,
)
from perfsuite.system.units import printable

FAILED = 1  # pytest's exit status of a run with red tests
HELP = "The verdicts of reports as Markdown; red ones fail."
QUESTION = "guard"
EXAMPLES = ("perfsuite summary report.jsonl", "perfsuite summary --brief report.jsonl")
PAGE = "ci"


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    text = "Reports of pytest --perf-report, or folders that may hold some."
    parser.add_argument("reports", type=Path, nargs="*", metavar="REPORT.jsonl", help=text)
    text = f"How the run itself ended, in GitHub's words ({SUCCESS}): anything else is red, whatever the reports say."
    parser.add_argument("--conclusion", default=SUCCESS, choices=CONCLUSIONS, metavar="WORD", help=text)
    parser.add_argument("--brief", action="store_true", help="At most 20 lines: what is red, and by how much.")
    add_select(parser)
    add_html(parser)
    add_shared(parser, CATALOG)


def run(arguments: argparse.Namespace) -> int:
    """Print it; 1 if the run failed, a report cannot be read, a cell is red or was not compared, or there is none."""
    page = html_of(arguments)
    catalog = catalog_of(arguments)
    cells, leaner = dict[LinePlace, CellResult](), Leaner()
    conclusion = arguments.conclusion
    for report in itertools.chain.from_iterable(map(files_of, arguments.reports)):
        try:
            here = {place: leaner.lean(result) for place, result in report_lines.results_of(report)}
            cells |= here
            found = report_lines.coverage_of(report)
            missing = say_missing_of(report, found)
        except FileError as error:  # a comment without it must not stay green
            print(f"perfsuite: {printable(str(error))}", file=sys.stderr)
            conclusion = UNREADABLE
            continue
        if conclusion == SUCCESS:
            conclusion = _conclusion(report, found, missing, any(map(is_red, here.values())))
    if arguments.expression:
        meant = cells_meant(arguments.expression, {cell.verdict.cell for cell in cells.values()}, catalog)
        cells = {place: cell for place, cell in cells.items() if meant(cell.verdict.cell)}
        if not cells:
            raise UsageError(f"-k {arguments.expression!r} matches no cell of the reports.")
    shown = sorted(cells.values(), key=report_lines.is_measured, reverse=True)
    metrics = catalog.all("metric").values()
    if page:
        write_run(page, shown, metrics, partial(_whole, {id(cell): place for place, cell in cells.items()}))
    if arguments.brief:
        text = render_brief(shown, conclusion)
    else:
        text = render_markdown(shown, metrics, conclusion)
    sys.stdout.write(text)
    return 0 if passes(shown, conclusion) else 1


def _whole(places: Mapping[int, LinePlace], cells: Sequence[CellResult]) -> list[CellResult]:
    """The results with their evidence, read again."""
    wanted = [places[id(cell)] for cell in cells]
    found = report_lines.results_at(wanted)
    return [found[place] for place in wanted]


def _conclusion(report: Path, found: report_lines.RunCoverage, missing: bool, has_red: bool) -> str:
    """How the run of a report ended, as the report itself tells. Of a run with red tests, a red cell tells it; without
    one, something else made them red.
    """
    status = found.exit_status
    if status == report_lines.INTERRUPTED:
        return INTERRUPTED
    if status == report_lines.PARTIAL:
        return INCOMPLETE
    if missing:
        return KILLED if status is None or report_lines.is_cut(report) else INCOMPLETE
    return SUCCESS if status in (None, 0) or (status == FAILED and has_red) else "failure"
