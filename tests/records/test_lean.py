"""Reports of thousands of cells are read without the evidence that nobody looks at."""

import tracemalloc
from pathlib import Path

from msgspec.structs import replace
from red_night import red_night
from whole_reports import write_report

from perfsuite.catalog.registry import Catalog
from perfsuite.cli.main import main
from perfsuite.records import report_lines
from perfsuite.records.lean import Leaner
from perfsuite.show.html.run_report import write_run

COPIES = 5


def many(path: Path) -> None:
    """A report of as many nights as copies, each with cells of its own names."""
    write_report(
        path,
        [
            replace(
                one,
                test=f"{one.test}{copy}",
                measurement=replace(one.measurement, cell=name),
                verdict=replace(one.verdict, cell=name),
            )
            for copy in range(COPIES)
            for one in red_night(4)
            for name in [one.cell.replace("-", f"{copy}-", 1)]
        ],
    )


def test_a_page_is_the_same_from_lean_results(tmp_path: Path) -> None:
    """Its sections and charts show the evidence, which is read again."""
    report, metrics = tmp_path / "report.jsonl", list(Catalog().all("metric").values())
    many(report)

    main(["summary", "--html", str(tmp_path / "lean.html"), str(report)])
    write_run(tmp_path / "whole.html", report_lines.read_report(report), metrics)

    assert (tmp_path / "lean.html").read_bytes() == (tmp_path / "whole.html").read_bytes()

    leaner = Leaner()
    write_run(tmp_path / "poor.html", [leaner.lean(one) for one in report_lines.read_report(report)], metrics)
    assert (tmp_path / "poor.html").stat().st_size < (tmp_path / "lean.html").stat().st_size


def test_most_of_a_result_is_its_evidence(tmp_path: Path) -> None:
    """What stays in memory of a report is a small part of what its lines say."""
    many(tmp_path / "report.jsonl")
    sizes = []
    for leaner in (Leaner(), None):
        tracemalloc.start()
        results = [leaner.lean(one) if leaner else one for _, one in report_lines.results_of(tmp_path / "report.jsonl")]
        sizes.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
        del results

    assert sizes[0] < sizes[1] / 5
