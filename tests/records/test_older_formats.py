"""Reports of formats 1 to 4 are read as today's: the same statuses, numbers, changes and causes."""

import json
from pathlib import Path

import pytest

from perfsuite.cli.main import main
from perfsuite.errors import FileError
from perfsuite.records import codec
from perfsuite.records.change import How
from perfsuite.records.older_formats import verdict_of
from perfsuite.records.verdict import Bound, Consent, Status
from perfsuite.show.text.verdict_text import render
from perfsuite.show.text.words import note_text

REPORT = (
    Path(__file__).parents[1] / "data" / "reports" / "format4.jsonl"
)  # written by the perfsuite of that time, shortened
ZERO3 = "bloom_tiny-zero3+bf16-cpu_x2"


def text_of(number: int) -> str:
    """The report, with another number of its format: the fields of verdicts were the same in all four."""
    return REPORT.read_text().replace('"format":4', f'"format":{number}')


@pytest.fixture(params=(1, 2, 3, 4))
def results(request, tmp_path):
    """Its cells."""
    path = tmp_path / "run.jsonl"
    path.write_text(text_of(request.param))
    return {one.verdict.cell: one for one in codec.read_measured(path)}


def test_the_verdicts_are_the_same(results):
    """As their texts said, in today's words."""
    old = {one["verdict"]["cell"]: one["verdict"]["status"] for one in map(json.loads, REPORT.open())}
    assert sorted(set(old.values())) == ["ok", "regressed", "undecided"]

    assert {cell: str(one.verdict.status) for cell, one in results.items()} == {
        cell: {"undecided": "open"}.get(status, status) for cell, status in old.items()
    }


def test_a_regression_has_its_numbers_and_its_cause(results):
    """What pages and issues group by is data."""
    verdict = results[ZERO3].verdict
    line = next(line for line in verdict.lines if line.metric == "peak_memory_bytes")

    assert (line.status, line.old, line.new) == (Status.REGRESSED, "2.95 MiB", "3.16 MiB")
    assert line.change == pytest.approx(0.07)
    assert line.limit and line.limit.bound == Bound.BELOW
    assert "communication buffers +211.73 KiB" in note_text(line)
    assert [(one.name, one.before, one.after) for one in verdict.changed] == [("deepspeed", "0.19.8", "0.20.0")]
    assert verdict.trial and [cause.how for cause in verdict.trial.causes] == [How.ALONE]
    assert (verdict.accept, verdict.collect) == (Consent.REGRESSED, "pytest --perf benchmarks/test_cells.py")


def test_a_time_of_a_trial_has_its_interval(results):
    """And prints as it did."""
    line = next(line for line in results[ZERO3].verdict.lines if line.metric == "step_time_seconds")

    assert line.interval and line.interval.pairs == 3
    assert note_text(line) == "-1.2 % to +1.3 %, 3 pairs"


def test_the_text_is_the_same():
    """Table, trial and command of the old report's red cell."""
    old = next(one for one in map(json.loads, REPORT.open()) if one["verdict"]["cell"] == ZERO3)["verdict"]
    (red,) = [one for one in codec.read_measured(REPORT) if one.verdict.cell == ZERO3]
    text = render(red.verdict)

    for line in old["lines"]:
        row = next(row for row in text.splitlines() if row.startswith(f"  {line['title']}  "))
        assert all(part in row for part in (line["old"], line["new"], line["change"], line["allowed"], line["note"]))
    assert old["headline"] == text.splitlines()[0]
    assert f"trial: {old['trial'][0]}" in text and f"trial: {old['trial'][1]}" in text
    assert f"accept:  {old['accept']} --perf-reason" in text


def test_every_command_reads_it(tmp_path, capsys):
    """Summary and results, with the exit code that they had."""
    assert main(["summary", str(REPORT)]) == 1
    assert "1 of 3 cells red (1 open)" in capsys.readouterr().out
    assert main(["results", "add", str(REPORT), "--into", str(tmp_path)]) == 0


@pytest.mark.parametrize(
    ("sentence", "how", "names"),
    [
        ("caused by torch 2.12.1 -> 2.13.0 alone", How.ALONE, ["torch"]),
        ("caused by your code 1a2b3c4d5e6f -> here", How.ONLY, ["your code"]),
        ("caused by a 1 -> 2 and b 1 -> 2 together: neither does it alone", How.TOGETHER, ["a", "b"]),
        ("caused by a 1 -> 2, b 1 -> 2 and c 1 -> 2, each alone (with a 1 -> 2: no)", How.ALONE, ["a", "b", "c"]),
    ],
)
def test_causes_are_read_from_sentences(sentence, how, names):
    """Every form that a sentence had."""
    trial = verdict_of({"cell": "c", "status": "regressed", "headline": "c: x", "trial": [sentence]})["trial"]

    assert [(one["how"], [change["name"] for change in one["changes"]]) for one in trial["causes"]] == [(how, names)]


def test_what_named_no_cause_is_kept_as_it_was():
    """Nothing of an old report is lost."""
    trial = verdict_of({"cell": "c", "status": "open", "headline": "c: x", "trial": ["not tried: so"]})["trial"]

    assert trial == {"causes": [], "unmoved": [], "said": ["not tried: so"]}


@pytest.mark.parametrize(("field", "value"), [("lines", [7]), ("trial", 7), ("changed", [7]), ("status", "good")])
def test_a_broken_old_verdict_is_refused_by_its_line(tmp_path, field, value):
    """Not read as a good one, and no traceback."""
    result = json.loads(REPORT.read_text().splitlines()[0])
    result["verdict"][field] = value
    path = tmp_path / "run.jsonl"
    path.write_text(json.dumps(result))

    with pytest.raises(FileError, match=r"run\.jsonl:1"):
        codec.read_report(path)
