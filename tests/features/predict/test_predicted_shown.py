"""Predicted cells beside measured ones: in a run's summary, in its report and on its page."""

import re

import msgspec
import pytest
from gate_samples import GIB, METRICS, baseline, measurement
from whole_reports import write_report

from perfsuite.cli.main import main
from perfsuite.compare.judge import judge
from perfsuite.features.predict.predicted_baselines import PredictedBaseline, judge_prediction
from perfsuite.features.predict.prediction import PredictedTime, Prediction
from perfsuite.features.predict.result import PredictedResult
from perfsuite.records import report_lines
from perfsuite.records.formats import FORMAT
from perfsuite.records.result import Result
from perfsuite.show.html.document import render
from perfsuite.show.html.run_report import run_document, write_run
from perfsuite.show.text.markdown import passes, render_brief, render_markdown

ABSENT = "gpt2_tiny-single+bf16-h100_x1"


PREDICTION = Prediction(
    format=FORMAT,
    cell=ABSENT,
    outcome="fits",
    world_size=1,
    peak_bytes=3 * GIB,
    parts={"activations": 3 * GIB},
    smallest_bytes=4 * GIB,
)


def predicted(peak_bytes: int = 3 * GIB, held: bool = True, updated: str = "") -> PredictedResult:
    now = msgspec.structs.replace(PREDICTION, peak_bytes=peak_bytes, parts={"activations": peak_bytes})
    before = PredictedBaseline(format=FORMAT, cell=ABSENT, date="", commit="", prediction=PREDICTION)
    return PredictedResult(prediction=now, verdict=judge_prediction(now, before if held else None), updated=updated)


def measured() -> Result:
    new, old = measurement(), baseline()
    return Result(measurement=new, baseline=old, verdict=judge(new, old, METRICS, strategy="zero3"))


def page_of(*results) -> str:
    return render(run_document(results, METRICS, 0)).decode()


@pytest.mark.parametrize(
    ("results", "good"),
    [
        ([predicted()], True),
        ([measured(), predicted()], True),
        ([measured(), predicted(4 * GIB)], False),
        ([predicted(held=False)], False),
        ([predicted(held=False, updated="baselines/x.json")], True),
    ],
)
def test_a_run_passes_only_if_its_predictions_are_equal(results, good):
    """Larger, or without a baseline: it does not pass unless that was accepted."""
    assert passes(results, "success") is good


def test_the_heading_counts_predictions():
    """As cells like others."""
    text = render_markdown([measured(), predicted()], METRICS, "success")

    assert text.startswith("## Training performance: 2 of 2 cells as good as their")
    assert render_brief([measured(), predicted(4 * GIB)]).startswith("## Training performance: 1 of 2 cells red\n")


def test_predictions_stand_apart():
    """A prediction has a table of its own that says what it is."""
    text = render_markdown([measured(), predicted()], METRICS, "success")

    assert "measured cells: 1<" in text
    assert "predicted cells, not measured: 1<" in text
    assert f"| `{ABSENT}` | `ok` | `3.00 GiB` | `4.00 GiB` |" in text


def test_a_report_with_predictions_reads_back(tmp_path):
    """Measured and predicted cells are distinguished."""
    results = [measured(), predicted()]
    write_report(tmp_path / "run.jsonl", results)

    assert report_lines.read_report(tmp_path / "run.jsonl") == results


def test_baseline_accept_leaves_predictions_alone(capsys, tmp_path):
    """They are in the same report, and have baselines of their own."""
    report = tmp_path / "run.jsonl"
    write_report(report, [measured(), predicted()])
    status = main(["baseline", "accept", str(report), "--baselines", str(tmp_path)])

    assert status == 0
    assert ABSENT not in capsys.readouterr().out


def test_measured_and_predicted_are_never_alike():
    """The word and another form, for each cell."""
    page = page_of(measured(), predicted())

    assert page.count('<span class="badge measured">measured</span>') == 1
    assert page.count('<span class="badge predicted">predicted</span>') == 1
    assert 'class="card green predicted"' in page and 'class="card green measured"' in page


def test_predicted_numbers_of_the_table_look_predicted():
    """In every row, if all rows are predicted too; with the tokens per second that the terminal has."""
    time = PredictedTime(cell="x", predicted_step_seconds=0.25, predicted_tokens_per_second=81920.0)
    page = page_of(msgspec.structs.replace(predicted(), time=time))
    row = page[page.index('id="cells"') :].partition("<tbody>")[2].partition("</tr>")[0]
    shown = re.findall(r'<td class="predicted"[^>]*>([^<]*)<', row)

    assert shown == ["predicted", "3.00 GiB", "250 ms", "81,920"]
    assert 'class="predicted"' not in page_of(measured())


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_in_a_prediction(visit, tmp_path, scheme):
    """Contrast, names, roles and order, with everything unfolded."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    write_run(tmp_path / "run.html", [predicted(held=False)], METRICS)
    page = visit(tmp_path / "run.html", scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    found = axe.Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]

    assert [(one["id"], one["impact"]) for one in found] == []
