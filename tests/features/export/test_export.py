"""``--perf-export``: results where a team looks, of whole runs whose results are made up: nothing is trained."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from gate_samples import GIB, baseline, measurement, memory

from perfsuite.compare.judge import judge
from perfsuite.environments.uv import uv_command, uv_variables
from perfsuite.features.export.annotations import annotation, first_changed
from perfsuite.features.export.bencher import MOST_SLUG, slug
from perfsuite.features.export.trackers import Tracker
from perfsuite.plugin.perf_run import PerfRun
from perfsuite.records.change import Change, ChangeKind
from perfsuite.records.result import Result

GREEN, RED = "gpt2_tiny-ddp-cpu_x2", "gpt2_tiny-ddp+bf16-cpu_x2"
TEST = f"""
import pytest

@pytest.mark.perf_cell({GREEN!r}, {RED!r})
def test_cell(perf_cell):
    perf_cell.check()
"""
# The schema of https://bencher.dev/docs/reference/bencher-metric-format
METRIC = {
    "type": "object",
    "properties": {name: {"type": "number"} for name in ("value", "lower_value", "upper_value")},
    "required": ["value"],
}
BENCHER = {
    "type": "object",
    "patternProperties": {".+": {"type": "object", "patternProperties": {".+": METRIC}}},
}


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    """Runs pytest over a green cell and one whose memory grew since train.py was changed."""

    def measure(self: PerfRun, cell, _: pytest.FixtureRequest) -> Result:
        readings = {"peak_memory_bytes": memory(22 * GIB)} if cell.id == RED else {}
        new = measurement(**readings)
        known = [metric for metric in self.output.metrics if metric.name in new.readings]
        change = Change("your code", "916fd7a06aaa", "here", ChangeKind.CODE, files=("train, v1.py",), contents=("",))
        verdict = judge(new, baseline(), known, strategy="ddp")
        verdict = msgspec.structs.replace(verdict, cell=cell.id, changed=[change] if cell.id == RED else [])
        new = msgspec.structs.replace(new, cell=cell.id)
        return Result(measurement=new, baseline=baseline(), verdict=verdict)

    monkeypatch.setattr(PerfRun, "measure", measure)
    pytester.makepyfile(test_perf=TEST)
    (pytester.path / "train, v1.py").touch()
    return lambda *options: pytester.runpytest_inprocess("--perf", "-p", "no:cacheprovider", *options)


def test_bencher_has_the_numbers_of_each_cell(run, pytester: pytest.Pytester) -> None:
    """A benchmark is a cell, a measure is a metric in the unit of its name."""
    run("--perf-export=bencher").stdout.fnmatch_lines(["--perf-export=bencher: bencher run --adapter json --file *"])
    written = json.loads((pytester.path / "perf-bencher.json").read_text())

    assert sorted(written) == sorted([GREEN, RED])
    assert written[RED]["peak-memory-bytes"] == {"value": 22 * GIB}
    assert written[RED]["step-time-seconds"] == {"value": 0.41, "lower_value": 0.4, "upper_value": 0.42}


@pytest.mark.parametrize(
    ("metric", "found"),
    [("peak_memory_bytes", "peak-memory-bytes"), ("_my Metric/µs_", "my-metric-s"), ("m" * 99, "m" * MOST_SLUG)],
)
def test_a_slug_has_letters_digits_and_hyphens(metric: str, found: str) -> None:
    """At most 64 of them, as Bencher's names have."""
    assert slug(metric) == found


def test_github_annotates_the_changed_file_of_a_red_cell(run) -> None:
    """One line for each red cell, at the beginning of a line, with the verdict's text and its escapes."""
    lines = run("--perf-export=github").stdout.lines
    (line,) = [line for line in lines if "::error" in line]

    assert line.startswith(f"::error file=train%2C v1.py,line=1,title={RED}%3A peak memory +10.0 %25 ")
    assert line.partition("::error ")[2].partition("::")[2].startswith(f"{RED}: peak memory ")
    assert "%0A" in line and "+10.0 %25" in line


def test_github_annotates_the_line_that_is_known(run, pytester: pytest.Pytester) -> None:
    """Of the metric that hurts most, in a file that is there."""
    (pytester.path / "net.py").touch()
    pytester.makeconftest("""
        import msgspec, pytest
        from perfsuite.records.verdict import Move

        @pytest.hookimpl(wrapper=True, tryfirst=True)
        def pytest_perf_result(result):
            move = Move(part="activations", by=1, line="net.py:14 in forward")
            for line in result.verdict.lines:
                line.moves[:] = [move]
            return (yield)
    """)
    lines = run("--perf-export=github").stdout.lines

    assert [line.startswith("::error file=net.py,line=14,") for line in lines if "::error" in line] == [True]


def test_github_annotates_the_test_if_no_file_has_changed(run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as after another release of a library."""
    (Path.cwd() / "train, v1.py").unlink()
    lines = run("--perf-export=github").stdout.lines

    assert [line.startswith("::error file=test_perf.py,line=1,") for line in lines if "::error" in line] == [True]


def test_the_escapes_are_those_of_workflow_commands() -> None:
    """As actions/toolkit writes them: a property escapes its separators too."""
    text = annotation("a,b:c%.py", 3, "100 %\nof it", "100 %: a, b\r\nc")

    assert text == "::error file=a%2Cb%3Ac%25.py,line=3,title=100 %25%0Aof it::100 %25: a, b%0D%0Ac"


def test_the_line_is_the_first_that_changed(tmp_path: Path) -> None:
    """Since the commit of the baseline; without that commit it is the file's first."""

    def git(*words: str) -> str:
        command = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b", *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    git("init", "-q")
    file = tmp_path / "train.py"
    file.write_text("a\nb\nc\nd\n")
    git("add", ".")
    git("commit", "-qm", "x")
    commit = git("rev-parse", "HEAD")
    file.write_text("a\nb\nC\nD\n")

    assert first_changed(tmp_path, commit, "train.py") == 3
    assert first_changed(tmp_path, "0" * 40, "train.py") == first_changed(tmp_path, "", "train.py") == 1
    file.write_text("b\nc\nd\n")
    assert first_changed(tmp_path, commit, "train.py") == 1


TRACKER = """
import json

def logged(*words):
    with open("logged", "a") as file:
        print(json.dumps(words), file=file)

def init(project, name, config):
    print("* a banner")
    logged("init", project, config["torch"])

def log(numbers):
    if {fails}:
        raise ConnectionError("no answer from" + chr(27) + "[2J the server")
    logged("log", numbers)

def finish():
    logged("finish")
"""


@pytest.mark.parametrize("name", ["trackio", "wandb"])
def test_a_tracker_gets_a_run(run, name: str, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same calls for both, without their words between the cells' lines."""
    (pytester.path / f"{name}.py").write_text(TRACKER.format(fails=False))
    monkeypatch.syspath_prepend(pytester.path)
    monkeypatch.setenv(f"{name.upper()}_PROJECT", "gate")
    result = run(f"--perf-export={name}")
    logged = [json.loads(line) for line in (pytester.path / "logged").read_text().splitlines()]

    assert [entry[0] for entry in logged] == ["init", "log", "log", "finish"]
    assert logged[0][1:] == ["gate", "2.13.0"]
    assert logged[2][1][f"{RED}/peak_memory_bytes"] == 22 * GIB
    assert [logged[1][1][f"{GREEN}/red"], logged[2][1][f"{RED}/red"]] == [0, 1]
    result.stdout.no_fnmatch_line("*banner*")
    result.stdout.fnmatch_lines([f"--perf-export={name}: project gate, run *"])


def test_a_tracker_that_fails_ends_no_run(run, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """The verdicts are there, and one sentence says what is not."""
    (pytester.path / "trackio.py").write_text(TRACKER.format(fails=True))
    monkeypatch.syspath_prepend(pytester.path)
    result = run("--perf-export=trackio,bencher")

    result.stdout.fnmatch_lines(
        ["*trackio: only the first 0 results were sent: ConnectionError: no answer from* server"]
    )
    assert "\x1b[2J" not in result.stdout.str()
    result.assert_outcomes(passed=1, failed=1)
    assert (pytester.path / "perf-bencher.json").exists()


def test_what_is_missing_is_one_sentence(run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is measured."""
    monkeypatch.setitem(sys.modules, "wandb", None)
    result = run("--perf-export=wandb")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(['ERROR: --perf-export=wandb: *: pip install "perfsuite[[]wandb]".'])


def test_a_conftest_takes_results_by_the_same_hook(run, pytester: pytest.Pytester) -> None:
    """As docs/report.md shows it."""
    pytester.makeconftest("""
        def pytest_perf_result(result, is_red):
            print(result.cell, result.kind, result.verdict.status, result.number("peak_memory_bytes"), is_red)
    """)
    result = run("-s")

    result.stdout.fnmatch_lines([f"{GREEN} measured ok {20 * GIB} False", f"{RED} measured regressed {22 * GIB} True"])


@pytest.fixture
def readers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The packages that read what is written, from this machine's index."""
    folder = tmp_path / "readers"
    command = [*uv_command(), "pip", "install", "--quiet", "--target", str(folder), "trackio", "jsonschema"]
    subprocess.run(command, env=uv_variables(), check=True)
    monkeypatch.setattr(sys, "path", [*sys.path, str(folder)])


@pytest.mark.network
def test_what_is_written_can_be_read(readers, run, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """By Trackio's own reader, and by the schema that Bencher documents."""
    monkeypatch.setenv("TRACKIO_DIR", str(pytester.path / "trackio"))
    monkeypatch.setenv("TRACKIO_PROJECT", "gate")
    import jsonschema
    from trackio.sqlite_storage import SQLiteStorage  # before the run, which would import numpy a second time

    run("--perf-export=trackio,bencher")
    (name,) = SQLiteStorage.get_runs("gate")
    numbers = {key: value for entry in SQLiteStorage.get_logs("gate", name) for key, value in entry.items()}

    assert numbers[f"{RED}/peak_memory_bytes"] == 22 * GIB
    assert [numbers[f"{GREEN}/red"], numbers[f"{RED}/red"]] == [0, 1]
    jsonschema.validate(json.loads((pytester.path / "perf-bencher.json").read_text()), BENCHER)


def test_a_project_is_named_like_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without what Weights & Biases refuses in a name."""
    monkeypatch.setattr("perfsuite.features.export.trackers.find_spec", lambda name: name)
    config = SimpleNamespace(rootpath=Path("/lab/my#run: 5%"))

    assert Tracker("trackio", config).project == "my-run- 5-"  # type: ignore[arg-type]
