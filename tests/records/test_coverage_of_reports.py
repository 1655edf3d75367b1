"""A report knows what was expected. What is missing fails every reader, and comparing nothing is no success."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import gate_samples as samples
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from whole_reports import write_report

from perfsuite.baselines.ledger import Acceptance
from perfsuite.baselines.store import Store
from perfsuite.cli.command_files import command_files
from perfsuite.cli.main import main
from perfsuite.compare.judge import judge
from perfsuite.errors import PerfsuiteError
from perfsuite.records import codec, report_lines
from perfsuite.records.reasons import Slower
from perfsuite.records.result import Result
from perfsuite.records.verdict import Status
from perfsuite.show.text.markdown import is_compared
from perfsuite.show.text.run_summary import asides

GREEN = Result(
    measurement=samples.measurement(),
    baseline=samples.baseline(),
    verdict=judge(samples.measurement(), samples.baseline(), samples.METRICS, strategy="zero3"),
    date="2026-11-02T10:00:00+00:00",
    test="test_perf.py::test_cell[t5_tiny-zero3-cpu_x2]",
)
TEST = """\
import time

import msgspec
import pytest


@pytest.mark.perf_cell("gpt2_tiny-single-cpu_x1", "t5_tiny-single-cpu_x1")
def test_cell(perf_cell):
    {}
"""
READERS = (["summary"], ["notify"], ["results", "{}/kept", "--add"])
COMMANDS = [words for words in READERS if words[0] in command_files()]  # some are of features


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


@pytest.fixture
def report(tmp_path: Path) -> Path:
    """A whole one, with a green cell."""
    return write_report(tmp_path / "run.jsonl", [GREEN])


def run(command: list[str], report: Path) -> int:
    """The exit status of a reader."""
    return main([*(word.format(report.parent) for word in command), str(report)])


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_whole_report_passes(report: Path, command: list[str]) -> None:
    """Every reader."""
    assert run(command, report) == 0


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b'"""A model."""\n\nimport torch\n', id="code"),
        pytest.param(codec.encode(samples.baseline()), id="baseline"),
        pytest.param(b'{"prompt": "a", "answer": "b"}\n', id="other lines"),
    ],
)
def test_another_file_is_no_report(
    tmp_path: Path, command: list[str], content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    """One sentence names the file and the way out, without a word of JSON."""
    (tmp_path / "other.jsonl").write_bytes(content)

    assert run(command, tmp_path / "other.jsonl")
    assert capsys.readouterr().err == (
        f"perfsuite: {tmp_path}/other.jsonl is not a report: name a file that pytest --perf-report=FILE.jsonl has "
        "written.\n"
    )


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_folder_may_hold_baselines_too(report: Path, command: list[str]) -> None:
    """Their ledger is no report."""
    Store(report.parent / "baselines").save(
        samples.baseline(), None, Acceptance(how="by hand", metrics=samples.METRICS)
    )

    assert run(command, report.parent) == 0


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
@pytest.mark.parametrize(
    ("cut", "said"),
    [
        (slice(0, 2), "has no end: its run was killed"),
        (slice(0, 1), "1 of 1 cell has no result: t5_tiny-zero3-cpu_x2"),
        (slice(1, 3), "has no beginning"),
        (slice(0, 3, 2), "1 of 1 cell has no result: t5_tiny-zero3-cpu_x2"),
    ],
    ids=["no end", "only a beginning", "no beginning", "no cell"],
)
def test_a_part_of_a_report_fails(
    report: Path, command: list[str], cut: slice, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every reader, which says what is missing."""
    report.write_bytes(b"".join(lines_of(report)[cut]))

    assert run(command, report) == 1
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("exit_status", "cut", "problem", "how"),
    [
        (2, slice(0, 3, 2), "is of a run that was interrupted. 1 of 1 cell has", "The run was interrupted, but"),
        (0, slice(0, 3, 2), "is incomplete. 1 of 1 cell has", "The run has no result of some cells, but"),
        (0, slice(0, 2), "has no end: its run was killed.", "The run ended before its report did, as if it was"),
        (3, slice(0, 3), "", "The run failed, but"),
    ],
    ids=["Ctrl-C", "no cell", "SIGKILL", "an error"],
)
def test_how_a_run_ended(
    tmp_path: Path, exit_status: int, cut: slice, problem: str, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C kills no run, and a sentence says which of both it was."""
    report = write_report(tmp_path / "run.jsonl", [GREEN], exit_status=exit_status)
    report.write_bytes(b"".join(lines_of(report)[cut]))

    assert main(["summary", str(report)]) == 1
    told = capsys.readouterr()
    assert told.err.startswith(f"perfsuite: {report} {problem}" if problem else "")
    assert how in told.out


@pytest.mark.parametrize("exit_status", [1, 3])
def test_a_run_that_failed_without_a_red_cell_fails(exit_status: int, tmp_path: Path) -> None:
    """An open cell with ``perf_open = fail``, another red test, pytest's own error, a plugin's, or Ctrl-C."""
    assert main(["summary", str(write_report(tmp_path / "run.jsonl", [GREEN], exit_status=exit_status))]) == 1


def test_a_line_that_hides_a_red_one_fails(tmp_path: Path) -> None:
    """A later line of the same test replaces one before it."""
    red = msgspec.structs.replace(GREEN, verdict=msgspec.structs.replace(GREEN.verdict, status=Status.REGRESSED))

    assert main(["summary", str(write_report(tmp_path / "run.jsonl", [red, GREEN], exit_status=1))]) == 1


@pytest.mark.slow
def test_a_killed_run_says_which_cells_are_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """SIGKILL in the second of two cells. Yesterday's file is gone as soon as the run begins."""
    (tmp_path / "run.jsonl").write_text("yesterday's\n")
    body = 'perf_cell.check() if "gpt2" in perf_cell.id else time.sleep(600)'
    (tmp_path / "test_perf.py").write_text(TEST.format(body))
    options = ["--perf", "--perf-report=run.jsonl", "--perf-update=new", "--perf-steps=2", "-o", "perf_launches=1"]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    while len(lines_of(tmp_path / "run.jsonl")) < 2 and time.monotonic() < deadline:
        time.sleep(0.2)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()

    assert main(["summary", str(tmp_path / "run.jsonl")]) == 1
    assert "1 of 2 cells has no result: t5_tiny-single-cpu_x1" in capsys.readouterr().err


def test_a_test_that_never_checks_is_red(pytester: pytest.Pytester) -> None:
    """It requests the cell, and compares nothing."""
    pytester.makepyfile(test_perf=TEST.format("pass"))
    result = pytester.runpytest_subprocess("--perf", "-p", "no:cacheprovider")

    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["the test requests perf_cell and never calls perf_cell.check()*"])


def test_a_test_that_swallows_the_verdict_is_red(pytester: pytest.Pytester) -> None:
    """There is no baseline, which is red, and the test catches it."""
    body = "\n    ".join(["try:", "    perf_cell.check()", "except Exception:", "    pass"])
    pytester.makepyfile(test_perf=TEST.format(body))
    result = pytester.runpytest_inprocess("--perf", "-k", "gpt2", "--perf-steps=1", "-p", "no:cacheprovider")

    result.assert_outcomes(failed=1, deselected=1)
    result.stdout.fnmatch_lines(["*the cell is red, and the test hid its verdict: *there is no baseline*"])


@pytest.mark.parametrize("hook", ["", "@pytest.hookimpl(tryfirst=True)\n", "@pytest.hookimpl(trylast=True)\n"])
def test_a_conftest_that_sets_the_exit_status_hides_nothing(hook: str, pytester: pytest.Pytester) -> None:
    """The red of the run is said after the hooks of others."""
    pytester.makeconftest(f"import pytest\n{hook}def pytest_sessionfinish(session): session.exitstatus = 0\n")
    pytester.makepyfile(
        test_perf='import pytest\n@pytest.mark.perf_cell("gpt2_tiny-single-h100_x1")\n'
        "def test_cell(perf_cell): perf_cell.check()\n"
    )
    result = pytester.runpytest_inprocess("--perf", "--perf-report=run.jsonl", "-p", "no:cacheprovider")

    assert result.ret == report_lines.coverage_of(pytester.path / "run.jsonl").exit_status == 1


def test_all_skipped_is_no_success(pytester: pytest.Pytester) -> None:
    """The hardware is not here, and that is said."""
    pytester.makepyfile(
        test_perf='import pytest\n@pytest.mark.perf_cell("gpt2_tiny-single-h100_x1")\n'
        "def test_cell(perf_cell): perf_cell.check()\n"
    )
    result = pytester.runpytest_subprocess("--perf", "--perf-report=run.jsonl", "-p", "no:cacheprovider")
    found = report_lines.coverage_of(pytester.path / "run.jsonl")

    assert result.ret == 1
    result.stdout.fnmatch_lines(["Nothing was compared, so this run is no success:*"])
    assert (found.is_whole, found.exit_status, len(found.skipped)) == (True, 1, 1)


def test_a_keyword_that_selects_nothing_is_no_success(pytester: pytest.Pytester) -> None:
    """pytest's own exit status, also in the report."""
    pytester.makepyfile(test_perf=TEST.format("perf_cell.check()"))
    result = pytester.runpytest_subprocess(
        "--perf", "-k", "nothing", "--perf-report=run.jsonl", "-p", "no:cacheprovider"
    )

    assert result.ret == report_lines.coverage_of(pytester.path / "run.jsonl").exit_status == 5
    assert main(["summary", str(pytester.path / "run.jsonl")]) == 1


@pytest.mark.parametrize(
    ("status", "updated", "quarantined", "compared"),
    [
        ("ok", "", "", True),
        ("immaterial", "", "", True),
        ("regressed", "", "", True),
        ("missing", "baselines/x.json", "", True),
        ("not compared", "", "", False),
        ("unsupported", "", "", False),
        ("regressed", "", "2026-12-24", False),
    ],
)
def test_what_counts_as_compared(status: str, updated: str, quarantined: str, compared: bool) -> None:
    """One rule, for pytest, summary and the action."""

    verdict = msgspec.structs.replace(GREEN.verdict, status=status)
    one = msgspec.structs.replace(GREEN, verdict=verdict, updated=updated, quarantined=quarantined)

    assert is_compared(one) is compared


def fuzz(path: Path, at: int, change: str, byte: int) -> None:
    """A changed report raises nothing but perfsuite's own errors, and is read as green only if no number or status of
    it can have changed: the reader says that it is whole, and finds the cell as it was.
    """
    whole = b"".join(
        codec.encode_line(line).encode() + b"\n" for line in (codec.decode(one, kind, "") for one, kind in PARTS)
    )
    at %= len(whole)
    changed = {
        "cut": whole[:at],
        "flip": whole[:at] + bytes([byte]) + whole[at + 1 :],
        "drop": whole[:at] + whole[at + 1 :],
        "twice": whole[: at + 1] + whole[at:],
        "line": b"".join(line for number, line in enumerate(whole.splitlines(keepends=True)) if number != at % 3),
    }[change]
    path.write_bytes(changed)
    try:
        coverage, results = report_lines.coverage_of(path), report_lines.read_measured(path)
    except PerfsuiteError:
        return
    if coverage.known and coverage.is_whole:
        assert len(results) == coverage.selected


PARTS: list = []


@pytest.fixture(scope="module", autouse=True)
def parts(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The lines of a whole report, with their kinds."""
    from perfsuite.records.result import RunBegin, RunEnd

    path = write_report(tmp_path_factory.mktemp("parts") / "run.jsonl", [GREEN])
    PARTS[:] = list(zip(path.read_bytes().splitlines(), (RunBegin, Result, RunEnd), strict=True))


CHANGES = st.sampled_from(["cut", "flip", "drop", "twice", "line"])


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**6), CHANGES, st.integers(0, 255))
def test_fuzzed_reports(tmp_path_factory: pytest.TempPathFactory, at: int, change: str, byte: int) -> None:
    """A sample of the slow test."""
    fuzz(tmp_path_factory.getbasetemp() / "fuzzed.jsonl", at, change, byte)


@pytest.mark.slow
@settings(max_examples=10_000, deadline=None)
@given(st.integers(0, 10**6), CHANGES, st.integers(0, 255))
def test_ten_thousand_fuzzed_reports(tmp_path_factory: pytest.TempPathFactory, at: int, change: str, byte: int) -> None:
    """Bytes flipped, dropped, doubled, and lines gone."""
    fuzz(tmp_path_factory.getbasetemp() / "fuzzed.jsonl", at, change, byte)


def test_a_slow_cell_without_a_change_says_what_would_decide() -> None:
    """The trial's command, and the option that makes it count."""
    slower = msgspec.structs.replace(GREEN.verdict.lines[0], status="open", reason=Slower(runs=1))
    verdict = msgspec.structs.replace(GREEN.verdict, status="open", lines=[slower])
    said = asides([msgspec.structs.replace(GREEN, verdict=verdict)])

    assert "to decide: pytest --perf -k t5_tiny-zero3-cpu_x2 --perf-against=abc; to let such cells fail: " in said[-1]
    assert said[-1].endswith("-o perf_open=fail")
