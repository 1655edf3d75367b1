"""The reasons of a report: each is read as the record that it was, or its line is refused in one sentence."""

import json
from pathlib import Path

import pytest
from gate_samples import CELL, LAUNCH, measurement

from perfsuite.errors import FileError
from perfsuite.records import codec, report_lines
from perfsuite.records.reasons import StepDiffers
from perfsuite.records.result import Result
from perfsuite.records.verdict import Status, Verdict

WHY = StepDiffers(first=1, differing=2, steps=3)
VERDICT = Verdict(cell=CELL, status=Status.REGRESSED, reason=WHY)
RESULT = Result(measurement=measurement(), baseline=None, verdict=VERDICT, date=LAUNCH.date)


def test_a_reason_is_read_as_it_was(tmp_path: Path) -> None:
    """A report calls it by the words of its record's name."""
    path = tmp_path / "report.jsonl"
    path.write_text(codec.encode_line(RESULT) + "\n")

    assert json.loads(path.read_text())["verdict"]["reason"]["because"] == "step differs"
    assert report_lines.read_measured(path)[0].verdict.reason == WHY


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"because": "magic"}, "Invalid value 'magic' - at `$.verdict.reason.because`"),
        ({"facts": {}}, "Object contains unknown field `facts` - at `$.verdict.reason`"),
        ({"first": "1"}, "Expected `int`, got `str` - at `$.verdict.reason.first`"),
        ({"because": "drifted", "since": ""}, "Object contains unknown field `first` - at `$.verdict.reason`"),
    ],
)
def test_a_strange_reason_is_refused(tmp_path: Path, change: dict[str, object], said: str) -> None:
    """Of an unknown kind, or with other facts than its kind has."""
    line = json.loads(codec.encode_line(RESULT))
    line["verdict"]["reason"] |= change
    path = tmp_path / "report.jsonl"
    path.write_text(json.dumps(line) + "\n")

    with pytest.raises(FileError) as refused:
        report_lines.read_report(path)
    assert str(refused.value) == f"{path}:1 is not a result: {said}."
