"""A report whose verdict is greener than its lines was changed by somebody: no command believes it."""

import json
from pathlib import Path

import gate_samples as samples
import msgspec
import pytest

from perfsuite.cli.main import main
from perfsuite.records.result import Result
from perfsuite.records.verdict import GREEN, OPEN, RED, Line, Status, Verdict

WORSE = sorted(RED - {Status.IMPROVED})


@pytest.mark.parametrize("claimed", sorted(GREEN | OPEN))
@pytest.mark.parametrize("status", WORSE)
def test_a_verdict_that_was_made_green_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], status: Status, claimed: Status
) -> None:
    """Its file, line and metric are named."""
    line = Line(metric="peak_memory_bytes", title="peak memory", status=status)
    verdict = Verdict(cell=samples.CELL, status=status, lines=[line])
    result = Result(measurement=samples.measurement(), baseline=None, verdict=verdict, date=samples.LAUNCH.date)
    record = json.loads(msgspec.json.encode(result))
    record["verdict"]["status"] = claimed
    path = tmp_path / "report.jsonl"
    path.write_text(json.dumps(record) + "\n")

    assert main(["summary", str(path)]) != 0
    said = capsys.readouterr().err
    assert f"{path}:1 is not a result: " in said
    assert f"{samples.CELL} is {claimed}, but its peak memory is {status}" in said
