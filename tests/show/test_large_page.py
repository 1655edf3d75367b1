"""A page of thousands of cells costs what a reader may look at: its size and its work do not grow with the rest."""

import cProfile
import pstats

import msgspec
import pytest
from gate_samples import GIB, METRICS, baseline, measurement, memory
from whole_reports import write_report

from perfsuite.cli.main import main
from perfsuite.compare.judge import judge
from perfsuite.records.change import Change
from perfsuite.records.result import Result
from perfsuite.show.html.document import render
from perfsuite.show.html.run_report import MOST_SECTIONS, run_document

CELLS = 10_000
NEW = {"green": measurement(), "red": measurement(peak_memory_bytes=memory(22 * GIB))}
VERDICTS = {name: judge(new, baseline(), METRICS, strategy="zero3") for name, new in NEW.items()}


def cells(count, kind):
    """Cells of one kind; "apart" are red, each since another change."""
    for number in range(count):
        name = f"model{number}-zero3-cpu_x2"
        new, verdict = (known["green" if kind == "green" else "red"] for known in (NEW, VERDICTS))
        changed = [Change(f"library{number}", "1", "2")] if kind == "apart" else []
        verdict = msgspec.structs.replace(verdict, cell=name, changed=changed)
        yield Result(measurement=msgspec.structs.replace(new, cell=name), baseline=baseline(), verdict=verdict)


def page(count, kind):
    return render(run_document(list(cells(count, kind)), METRICS))


@pytest.mark.parametrize("kind", ["green", "red", "apart"])
def test_the_page_of_ten_thousand_cells_is_small(kind):
    """Five megabytes. The first cells have their evidence, and each link leads to one that has."""
    text = page(CELLS, kind).decode()
    sections = text.count('id="cell-')

    assert len(text.encode()) < 5_000_000
    assert sections == MOST_SECTIONS
    assert {link.partition('"')[0] for link in text.split('href="#')[1:]} <= {
        one.partition('"')[0] for one in text.split('id="')[1:]
    }
    assert "perfsuite summary REPORT.jsonl -k CELL" in text


@pytest.mark.parametrize("kind", ["green", "red", "apart"])
def test_four_times_the_cells_are_no_sixteen_times_the_work(kind):
    """Counted in calls of functions, which no other load of the machine changes."""
    calls = []
    for count in (1000, 4000):
        results = list(cells(count, kind))
        with cProfile.Profile() as profile:
            run_document(results, METRICS)
        calls.append(pstats.Stats(profile).total_calls)

    assert calls[1] < 6 * calls[0]


def test_one_cell_of_a_report_has_a_page_of_its_own(tmp_path, capsys):
    """Which a page without its evidence names."""
    report = tmp_path / "report.jsonl"
    write_report(report, list(cells(3, "red")))
    one = "model1-zero3-cpu_x2"

    assert main(["summary", str(report), "-k", one, "--html", str(tmp_path / "cell.html")]) == 1
    assert "1 of 1 cell red" in capsys.readouterr().out
    assert (tmp_path / "cell.html").read_text().count('id="cell-') == 1
    assert main(["summary", str(report), "-k", "nothing"]) == 2
