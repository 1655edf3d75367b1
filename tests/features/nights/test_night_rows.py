"""Rows of nights in their monthly files: several processes add some, and a number that no arithmetic can hold."""

import json
import subprocess
import sys
from pathlib import Path

import gate_samples as samples
import msgspec
import pytest

from perfsuite.errors import FileError
from perfsuite.features.nights import row
from perfsuite.features.nights.row import NightRow, read_month
from perfsuite.records.result import Result
from perfsuite.records.verdict import Status, Verdict
from perfsuite.system.changing import changing

DIGITS = "1" * 400, "-" + "9" * 400, "7" * 5000, "9" * 50 + "e51"
ADDS = """
import sys
from pathlib import Path
from perfsuite.features.nights.row import NightRow, write_months
print("ready", flush=True)
sys.stdin.readline()
cell = f"gpt2_tiny-single-cpu_x{sys.argv[2]}"
write_months([NightRow(date="2026-11-01T00:00:00Z", cell=cell, machine="m")], Path(sys.argv[1]))
"""


def test_rows_that_are_added_at_once_are_all_there(tmp_path):
    """Eight processes begin together."""
    started = [
        subprocess.Popen([sys.executable, "-c", ADDS, str(tmp_path), str(number)], stdin=-1, stdout=-1, text=True)
        for number in range(1, 9)
    ]
    for process in started:
        process.stdout.readline()
    for process in started:
        process.stdin.write("\n")
        process.stdin.flush()
    codes = [process.communicate()[0] or process.returncode for process in started]

    assert codes == [0] * 8
    assert len(read_month(tmp_path / "2026-11.jsonl")) == 8


def test_a_change_waits_for_the_one_before(tmp_path):
    """Another process cannot write while this one has read and not yet written."""
    (tmp_path / "2026-11.jsonl").write_bytes(b"")
    with changing(tmp_path / "2026-11.jsonl"):
        process = subprocess.Popen([sys.executable, "-c", ADDS, str(tmp_path), "1"], stdin=-1, stdout=-1, text=True)
        process.stdout.readline()
        process.stdin.write("\n")
        process.stdin.flush()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
        row = NightRow(date="2026-11-01T00:00:00Z", cell="gpt2_tiny-single-cpu_x2", machine="m")
        (tmp_path / "2026-11.jsonl").write_bytes(msgspec.json.encode(row) + b"\n")
    process.communicate()

    assert len(read_month(tmp_path / "2026-11.jsonl")) == 2


@pytest.mark.parametrize("number", [*DIGITS, "1e400", "1E+0300", "NaN", "Infinity"])
def test_a_row_of_a_night_is_refused(tmp_path: Path, number: str) -> None:
    """Whether its numbers are read at once or later."""
    report = tmp_path / "report.jsonl"
    verdict = Verdict(cell=samples.CELL, status=Status.OK)
    one = Result(measurement=samples.measurement(), baseline=None, verdict=verdict, date=samples.LAUNCH.date)
    report.write_bytes(msgspec.json.encode(one) + b"\n")
    (month,) = row.write_months(row.read_report(report), tmp_path)
    line = json.loads(month.read_text())
    line["metrics"]["loss"] = 987654321
    month.write_text(f"{json.dumps(line)}\n".replace(str(987654321), number) * 2)

    for read in (row.read_month, row.read_raw):
        with pytest.raises(FileError, match=":1 is no result of a run"):
            read(month)
