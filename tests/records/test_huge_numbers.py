"""A number that no arithmetic can hold is refused with file and field, wherever numbers come in."""

import json
import socket
from pathlib import Path

import gate_samples as samples
import msgspec
import pytest

from perfsuite.baselines import ledger
from perfsuite.baselines.store import Store
from perfsuite.cli.main import main
from perfsuite.errors import FileError
from perfsuite.records import codec
from perfsuite.records.result import Result
from perfsuite.records.verdict import Status, Verdict
from perfsuite.records.wire_lines import Gone, Lines

HUGE = [
    pytest.param("1" * 400, id="400 digits"),
    pytest.param("-" + "9" * 400, id="negative"),
    pytest.param("7" * 5000, id="5000 digits"),
    pytest.param("1e400", id="beyond a float"),
    pytest.param("1E+0300", id="a float whose square is none"),
    pytest.param("9" * 50 + "e51", id="both together"),
    pytest.param("NaN", id="nan"),
    pytest.param("Infinity", id="infinity"),
]
MARK = 987654321


def result() -> bytes:
    """A line of a report with one number that is recognized."""
    verdict = Verdict(cell=samples.CELL, status=Status.OK)
    one = Result(measurement=samples.measurement(), baseline=None, verdict=verdict, date=samples.LAUNCH.date)
    return msgspec.json.encode(one)


@pytest.mark.parametrize("number", HUGE)
def test_a_report_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], number: str) -> None:
    """Its line is named."""
    line = json.loads(result())
    line["measurement"]["readings"]["step_time_seconds"]["value"] = MARK
    path = tmp_path / "report.jsonl"
    path.write_text(json.dumps(line).replace(str(MARK), number) + "\n")
    status = main(["summary", str(path)])
    said = capsys.readouterr().err

    assert status
    assert f"{path}:1 is not a result: " in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("number", HUGE)
def test_a_baseline_is_refused(tmp_path: Path, number: str) -> None:
    """Its file is edited by people."""
    store = Store(tmp_path)
    record = msgspec.to_builtins(samples.baseline())
    record["measurement"]["readings"]["peak_memory_bytes"] = {"value": MARK}
    store.path(samples.CELL).parent.mkdir()
    store.path(samples.CELL).write_text(json.dumps(record).replace(str(MARK), number))

    with pytest.raises(FileError, match="is not a baseline"):
        store.load(samples.CELL)


@pytest.mark.parametrize("number", HUGE)
def test_a_ledger_is_refused(number: str) -> None:
    """Its ratios are multiplied."""
    consent = ledger.Acceptance(how="by hand", metrics=samples.METRICS)
    new = samples.baseline(peak_memory_bytes=samples.memory(MARK))
    entry = msgspec.json.encode(ledger.entry_of(None, new, consent)).decode()

    assert ledger.decode(entry.encode(), "there").metrics["peak_memory_bytes"].new == MARK
    with pytest.raises(FileError, match="there is not a ledger entry"):
        ledger.decode(entry.replace(str(MARK), number).encode(), "there")


@pytest.mark.parametrize("number", HUGE)
def test_a_message_of_another_machine_is_refused(monkeypatch: pytest.MonkeyPatch, number: str) -> None:
    """Its sender is lost, and no reader of the message meets the number."""
    ends = socket.create_server(("127.0.0.1", 0))
    here = socket.create_connection(ends.getsockname())
    there, _ = ends.accept()
    agent, parent = Lines(here, b"k", "agent"), Lines(there, b"k", "parent")
    with monkeypatch.context() as patched:
        patched.setattr("json.dumps", lambda message: f'{{"status": {message["status"]}}}')
        agent.send({"status": number})

    with pytest.raises(Gone, match="a line is no JSON"):
        parent.receive(10)
    for end in (agent, parent, ends):
        end.close()


def test_a_harmless_number_is_read() -> None:
    """A hash that looks like an exponent, and the largest number that is allowed."""
    line = json.loads(result()) | {"commit": "1e999", "seconds": 1e100}

    assert codec.decode(json.dumps(line).encode(), Result, "there").seconds == 1e100
