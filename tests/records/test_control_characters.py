"""Foreign text is shown and not obeyed: escape sequences of a rank, a report or a file name reach no terminal."""

import json
from pathlib import Path

import gate_samples as samples
import msgspec
import pytest

from perfsuite.cli.main import main
from perfsuite.launch.blame import last_lines
from perfsuite.records import codec
from perfsuite.records.change import Change, Problem, TrialReport
from perfsuite.records.failure import Failure
from perfsuite.records.reasons import InWords
from perfsuite.records.result import Result
from perfsuite.records.verdict import Consent, EvidenceTrace, Line, Status, TraceKind, Verdict
from perfsuite.system.units import printable

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\x7f"


def is_harmless(text: str) -> bool:
    """Only line ends and tabs are left of the control characters."""
    return all(char in "\n\t" or (ord(char) >= 0x20 and not 0x7F <= ord(char) < 0xA0) for char in text)


def test_they_are_written_out() -> None:
    """Readable, and harmless; a tab and a line end stay."""
    assert printable("a\x1b[2J\tb\n") == "a\\x1b[2J\tb\n"
    assert is_harmless(printable(EVIL))


@pytest.mark.parametrize("raw", [False, True])
def test_a_records_texts_are_harmless(raw: bool) -> None:
    """Escaped in the JSON, or raw where JSON allows it; a backslash before is no way around."""
    text = json.dumps({"kind": "raised", "rank": 0, "message": EVIL + "\\" + EVIL}, ensure_ascii=not raw)
    failure = codec.decode(text.encode(), Failure, "there")

    assert is_harmless(failure.message)
    assert "\\x1b]0;owned" in failure.message


def test_an_escaped_backslash_stays_what_it_is() -> None:
    """``\\\\u001b`` in JSON is a text of six characters, and no escape."""
    failure = codec.decode(rb'{"kind": "raised", "rank": 0, "message": "\\u001b"}', Failure, "there")

    assert failure.message == "\\u001b"


def test_a_ranks_log_is_harmless(tmp_path: Path) -> None:
    """Its last lines are part of a red test."""
    (tmp_path / "rank0.log").write_text(f"loading\n{EVIL}\n")

    assert is_harmless(last_lines(tmp_path, 0))


def test_a_strangers_report_is_harmless(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On the terminal of `perfsuite summary`: in a message, and in names, paths and commands."""
    change = Change(EVIL, EVIL, EVIL, files=(EVIL,))
    verdict = Verdict(
        cell=samples.CELL,
        status=Status.FAILED,
        reason=InWords(message=EVIL),
        lines=[Line(metric=EVIL, title=EVIL, status=Status.REGRESSED, unit=EVIL, old=EVIL, new=EVIL)],
        changed=[change],
        trial=TrialReport(against=[change], problems=[Problem(message=EVIL)]),
        traces=[EvidenceTrace(kind=TraceKind.PERFETTO, path=EVIL)],
        accept=Consent.REGRESSED,
        collect=EVIL,
    )
    result = Result(measurement=samples.measurement("failed"), baseline=None, verdict=verdict)
    (tmp_path / "report.jsonl").write_bytes(msgspec.json.encode(result) + b"\n")
    main(["summary", str(tmp_path / "report.jsonl")])
    shown = capsys.readouterr()

    assert is_harmless(shown.out + shown.err)
    assert "owned" in shown.out


def test_a_file_name_in_an_error_is_harmless(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The sentence names the file that was asked for."""
    assert main(["summary", str(tmp_path / EVIL)]) == 2
    assert is_harmless(capsys.readouterr().err)
