"""The front door as a user's repository meets it: every test runs pytest in a folder of its own."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import tomllib
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from perfsuite.baselines.ledger import Acceptance
from perfsuite.baselines.store import Store
from perfsuite.cli.main import main
from perfsuite.records import codec, report_lines
from perfsuite.run.runner import Runner
from perfsuite.show.text.verdict_words import headline
from perfsuite.system import machine
from perfsuite.system.machine import version_of

ROOT = Path(__file__).parents[2]
CELL = "gpt2_tiny-single-cpu_x1"
# Times of two runs on a shared machine differ as they like: without that tolerance a cell would be "machine" at times.
FEW = ("--perf-steps=3", "-o", "perf_warmup=1", "-o", "perf_launches=1", "-o", "perf_time_tolerance=1000")
TEST = """
import pytest

@pytest.mark.perf_cell({cells})
def test_cell(perf_cell{fixtures}):
    perf_cell.check()
"""


@pytest.fixture
def repository(pytester):
    """A user's repository with one test of one cell, and the cell's baseline where it will be."""

    def make(*cells, fixtures="", conftest=""):
        pytester.makepyfile(test_perf=TEST.format(cells=", ".join(map(repr, cells)), fixtures=fixtures))
        pytester.makeini("[pytest]\nperf_time_tolerance = 1000")  # the machine may be as busy as it likes
        if conftest:
            pytester.makeconftest(conftest)
        return pytester

    return make


def perf(pytester, *options):
    """Run pytest --perf with few steps; returns what pytester gives. In this process, whose rank servers are warm."""
    return pytester.runpytest_inprocess("--perf", *FEW, "-p", "no:cacheprovider", *options)


def apart(pytester, *options):
    """As perf, in a process of its own."""
    return pytester.runpytest_subprocess("--perf", *FEW, "-p", "no:cacheprovider", *options)


def baseline_of(pytester, cell):
    return pytester.path / "baselines" / cell.split("-")[2] / f"{cell}.json"


def write_accepted(path, record):
    """Write a baseline that the ledger accepts as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record))
    Store(path.parents[1]).adopt(path, Acceptance(how="perfsuite baseline accept", metrics=(), reason="a test's"))


def test_without_perf_cells_are_skipped_and_torch_stays_away(repository):
    """Plain pytest skips a cell, says why, and never imports torch."""
    pytester = repository(CELL, conftest="import sys\ndef pytest_unconfigure(): print('torch' in sys.modules)")
    result = pytester.runpytest_subprocess("-rs")

    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*needs --perf*", "False"])


def test_with_perf_the_parent_never_imports_torch(repository):
    """With --perf torch lives in the ranks alone, and other tests are deselected."""
    pytester = repository(CELL, conftest="import sys\ndef pytest_unconfigure(): print('torch' in sys.modules)")
    pytester.makepyfile(test_other="def test_other(): raise RuntimeError('not a cell')")
    result = apart(pytester, "--perf-update=new")

    result.assert_outcomes(passed=1, deselected=1)
    result.stdout.fnmatch_lines(["False"])


def test_a_mistyped_word_of_k_is_told(repository):
    """Nothing is selected, nothing is run, and the nearest part of a cell's name is named."""
    result = perf(repository(CELL), "-k", "gtp2_tiny")

    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result.stdout.fnmatch_lines(["-k selects no cell. No name contains 'gtp2_tiny': did you mean 'gpt2_tiny'?"])


def test_life_of_a_baseline(repository):
    """Missing is red and says how to record; recorded is green; a byte more or less is red until accepted by name."""
    pytester = repository(CELL)
    missing = perf(pytester)
    recorded = perf(pytester, "--perf-update=new")
    path = baseline_of(pytester, CELL)
    green = perf(pytester)
    text = path.read_text()
    peak = json.loads(text)["measurement"]["readings"]["peak_memory_bytes"]["value"]
    smaller = json.loads(text)
    reading = smaller["measurement"]["readings"]["peak_memory_bytes"]
    less = peak - peak // 100
    reading["value"], reading["parts"]["activations"] = less, reading["parts"]["activations"] - peak // 100
    write_accepted(path, smaller)
    regressed = perf(pytester, f"--junitxml={pytester.path}/junit.xml")
    wrong_consent = perf(pytester, "--perf-update=improved")
    accepted = perf(pytester, "--perf-update=regressed", "--perf-reason=a byte more")

    missing.assert_outcomes(failed=1)
    missing.stdout.fnmatch_lines([f"*pytest --perf test_perf.py -k {CELL} --perf-update=new*"])
    recorded.assert_outcomes(passed=1)
    recorded.stdout.fnmatch_lines([f"baseline new: baselines/cpu_x1/{CELL}.json"])
    green.assert_outcomes(passed=1)
    regressed.assert_outcomes(failed=1)
    verdict = ["*regressed*", "*peak memory*REGRESSED*activations*", "*--perf-update=regressed*"]
    regressed.stdout.fnmatch_lines(verdict)
    junit = ElementTree.parse(pytester.path / "junit.xml").find(".//failure")
    assert junit.text and CELL in junit.text and "peak memory" in junit.text and "REGRESSED" in junit.text
    wrong_consent.assert_outcomes(failed=1)
    accepted.assert_outcomes(passed=1)
    accepted.stdout.fnmatch_lines([f"baseline changed: baselines/cpu_x1/{CELL}.json", "  peak memory  *%*"])
    assert json.loads(path.read_text())["measurement"]["readings"]["peak_memory_bytes"]["value"] == peak
    ledger = [json.loads(line) for line in (pytester.path / "baselines" / "ledger.jsonl").read_text().splitlines()]
    assert [entry["change"] for entry in ledger] == ["new", "adopted", "changed"]
    assert ledger[2]["reason"] == "a byte more"
    magnitude = ledger[2]["metrics"]["peak_memory_bytes"]
    assert (magnitude["old"], magnitude["new"], magnitude["ratio"]) == (less, peak, peak / less)


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda text: text[: len(text) // 2], "*is not a baseline*"),
        (lambda text: "", "*is not a baseline*"),
        (lambda text: text.replace('"value"', '"valeu"', 1), "*valeu*"),
        (lambda text: re.sub(r'"format": \d', '"format": 99', text), "*newer perfsuite*"),
        (lambda text: text.replace(CELL, "gpt2_tiny-ddp-cpu_x1"), "*gpt2_tiny-ddp-cpu_x1*"),
    ],
    ids=["torn", "empty", "misspelt", "newer", "another-cell"],
)
def test_damaged_baseline_is_red_and_kept(repository, damage, complaint):
    """A torn or malformed baseline fails its cell with one sentence that names the file, and is not touched."""
    pytester = repository(CELL)
    path = baseline_of(pytester, CELL)
    path.parent.mkdir(parents=True)
    whole = (Path(__file__).parents[2] / "baselines" / "cpu_x1" / f"{CELL}.json").read_text()
    path.write_text(damage(whole))
    result = perf(pytester, "--perf-update=all", "--perf-reason=whatever it is")

    result.assert_outcomes(failed=1)
    remedy = f"*Restore it from git, or remove it and record it again: * -k {CELL} --perf-update=new --perf-reason=*"
    result.stdout.fnmatch_lines([f"{complaint}{remedy}"])
    result.stdout.no_fnmatch_line("*Traceback*")
    assert path.read_text() == damage(whole)
    assert [file.name for file in path.parent.iterdir()] == [path.name]


COMMITTED = Path(__file__).parents[2] / "baselines"


@pytest.fixture
def without_deepspeed(monkeypatch):
    """It is not installed, as far as this process knows."""
    monkeypatch.setattr(machine, "version_of", lambda name: "" if name == "deepspeed" else version_of(name))


def held_to(pytester, cell, change=lambda baseline: None):
    """The committed baseline is the repository's, with that change."""
    baseline = json.loads((COMMITTED / cell.split("-")[2] / f"{cell}.json").read_text())
    change(baseline)
    write_accepted(baseline_of(pytester, cell), baseline)


@pytest.fixture
def summary_of(capsys):
    """What ``perfsuite summary`` says of a report, and its exit code."""

    def summary_of(pytester):
        capsys.readouterr()
        status = main(["summary", str(pytester.path / "run.jsonl")])
        return capsys.readouterr().out.splitlines()[0], status

    return summary_of


def cannot_run(baseline):
    """It was recorded where the package was missing already."""
    failure = {"kind": "unsupported", "rank": None, "message": "no deepspeed"}
    baseline["measurement"] |= {"outcome": "unsupported", "readings": {}, "failure": failure}


def test_a_package_that_is_gone_is_red(repository, summary_of, without_deepspeed):
    """A cell that could be trained, by its baseline, is not green since an upgrade has removed what it needs; whoever
    wants that consents to it by name.
    """
    cell = "gpt2_tiny-zero3-cpu_x2"
    pytester = repository(cell)
    held_to(pytester, cell)
    red = perf(pytester, "--perf-report=run.jsonl")
    summary = summary_of(pytester)
    accepted = perf(pytester, "--perf-update=regressed", "--perf-reason=no DeepSpeed any more")
    green = perf(pytester, "-rs")

    red.assert_outcomes(failed=1)
    told = "fits -> unsupported: zero3 needs deepspeed, not installed here: pip install deepspeed."
    red.stdout.fnmatch_lines([told])
    red.stdout.no_fnmatch_line("accept:*")  # the remedy is to install it
    assert summary == ("## Training performance: 1 of 1 cell red", 1)
    accepted.assert_outcomes(passed=1)
    green.assert_outcomes(skipped=1)


@pytest.mark.parametrize("stored", [False, True])
def test_a_package_that_never_was_there_is_skipped(repository, without_deepspeed, stored):
    """Without a baseline, or with one that says so, nothing has been lost; and nothing new is recorded of it."""
    cell = "gpt2_tiny-zero3-cpu_x2"
    pytester = repository(cell)
    if stored:
        held_to(pytester, cell, cannot_run)
    result = perf(pytester, "-rs", "--perf-update=new")

    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*zero3 needs deepspeed, not installed here: pip install deepspeed*"])
    assert baseline_of(pytester, cell).exists() == stored


@pytest.mark.parametrize(("run", "worker"), [(perf, ()), (apart, ("-n1",))], ids=["alone", "xdist"])
def test_a_cell_without_a_measurement_is_in_the_report(repository, summary_of, run, worker):
    """A torn baseline is red in the report too, and no word of -k is blamed for it."""
    pytester = repository(CELL)
    baseline_of(pytester, CELL).parent.mkdir(parents=True)
    baseline_of(pytester, CELL).write_text("{")
    result = run(pytester, "--perf-report=run.jsonl", "-k", "gpt2", *worker)

    result.assert_outcomes(failed=1)
    result.stdout.no_fnmatch_line("*-k selects no cell*")
    assert summary_of(pytester) == ("## Training performance: 1 of 1 cell red", 1)
    assert "is not a baseline" in (pytester.path / "run.jsonl").read_text()


def full(*_):
    """What writing to a full disk raises."""
    raise OSError(28, "No space left")


@pytest.mark.parametrize(
    ("measure", "options", "told"),
    [
        (Runner.measure, ("--perf-hardware=h200_x1",), "gpt2_tiny-single-h200_x1: h200_x1 is not here"),
        (full, (), f"{CELL}: OSError: [Errno 28] No space left"),
    ],
    ids=["absent", "full disk"],
)
def test_whatever_stops_a_cell_is_in_the_report(repository, summary_of, monkeypatch, measure, options, told):
    """In its setup or in its call, by an error of perfsuite's own or of the machine."""
    monkeypatch.setattr(Runner, "measure", measure)
    pytester = repository(CELL)
    result = perf(pytester, "--perf-report=run.jsonl", *options)
    (one,) = report_lines.read_measured(pytester.path / "run.jsonl")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert headline(one.verdict).startswith(told)
    assert summary_of(pytester)[1] == 1


def test_a_listing_leaves_the_last_report(repository):
    """An option in ``addopts`` is there whenever pytest is called, as ``perfsuite baseline prune`` does."""
    pytester = repository(CELL)
    pytester.makeini("[pytest]\naddopts = --perf-report=run.jsonl")
    (pytester.path / "run.jsonl").write_text("the last one\n")
    perf(pytester, "--collect-only")

    assert (pytester.path / "run.jsonl").read_text() == "the last one\n"


def test_a_report_that_cannot_be_made_is_told_at_once(repository):
    """The kernel's folder exists, and no file can be made in it: nothing is trained."""
    result = perf(repository(CELL), "--perf-report=/proc/run.jsonl")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--perf-report names /proc/run.jsonl, but no file can be created there: *"])


def test_a_report_that_cannot_be_written_is_red(repository, without_deepspeed, monkeypatch):
    """A disk that is full by then: one sentence beside the table of what was measured, and no traceback."""
    cell = "gpt2_tiny-zero3-cpu_x2"
    pytester = repository(cell)
    held_to(pytester, cell, cannot_run)
    monkeypatch.setattr(codec, "write_bytes", full)
    result = perf(pytester, "--perf-report=run.jsonl")

    result.assert_outcomes(skipped=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["perfsuite: the report */run.jsonl cannot be written: No space left."])
    assert "INTERNALERROR" not in result.stdout.str() + result.stderr.str()


@pytest.mark.parametrize(
    ("expression", "cells"),
    [
        (CELL, [CELL]),
        (f"{CELL}-b8", [f"{CELL}-b8"]),
        ("llama_tiny-single-cpu_x1", []),
        (f"{CELL}-b8 or {CELL}", [CELL, f"{CELL}-b8"]),
        ("gpt2_tiny-single", [CELL, f"{CELL}-b8", f"{CELL}-b4"]),
    ],
)
def test_k_with_a_whole_id_means_that_cell_alone(repository, expression, cells):
    """Consent to a cell is none to those whose ids contain its own, whether or not the cell is there."""
    pytester = repository(CELL, f"{CELL}-b8", f"{CELL}-b4", "llama_tiny-single-cpu_x1-b8")
    result = pytester.runpytest_inprocess("--perf", "--co", "-q", "-k", expression)

    assert sorted(re.findall(r"test_cell\[(.*)\]", result.stdout.str())) == sorted(cells)


def test_the_command_that_accepts_collects_the_cell(repository):
    """From a file that pytest does not collect by itself, whose name needs quotes, on hardware of the option's."""
    pytester = repository("gpt2_tiny-ddp-cpu_x2")
    (pytester.path / "test_perf.py").rename(pytester.path / "some cells.py")
    result = perf(pytester, "--perf-hardware=cpu_x2", "some cells.py")
    command = re.findall(r"pytest (.*) --perf-update=new", result.stdout.str())[0]
    collected = pytester.runpytest_inprocess("--co", "-q", *shlex.split(command))

    assert command == "--perf --perf-hardware=cpu_x2 'some cells.py' -k gpt2_tiny-ddp-cpu_x2"
    collected.stdout.fnmatch_lines(["some cells.py::test_cell[[]gpt2_tiny-ddp-cpu_x2]"])


@pytest.mark.slow
def test_two_writers_of_one_baseline(repository):
    """Of two runs that record the same cell at once, one wins and the other is told; the file is whole."""
    pytester = repository(CELL)
    command = [sys.executable, "-m", "pytest", "--perf", *FEW, "--perf-update=new", "-p", "no:cacheprovider"]
    runs = [subprocess.Popen(command, cwd=pytester.path, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [run.communicate(timeout=120)[0] for run in runs]

    assert sorted(run.returncode for run in runs) == [0, 1]
    assert "baselines" in outputs[0] and "baselines" in outputs[1]
    assert json.loads(baseline_of(pytester, CELL).read_text())["cell"] == CELL


def test_ctrl_c_leaves_nothing_behind(repository, cold):
    """Ctrl-C in mid-cell ends every rank and server; no baseline and no part of one is there."""
    cell = "gpt2_tiny-ddp-cpu_x2"
    pytester = repository(cell)
    environment = dict(os.environ, TMPDIR=str(pytester.mkdir("tmp")))
    command = [sys.executable, "-m", "pytest", "--perf", "--perf-steps=100000", "--perf-update=new"]
    run = subprocess.Popen(command, cwd=pytester.path, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        _wait_until(lambda: any(_step_of(path) > 5 for path in pytester.path.glob("tmp/**/cell-*/*.progress")))
        ours = _processes_with(str(pytester.path / "tmp"))
        run.send_signal(signal.SIGINT)
        output = run.communicate(timeout=30)[0]
    finally:
        run.kill()

    assert len(ours) >= 3  # a server and two ranks
    assert run.returncode == 2
    assert "KeyboardInterrupt" in output
    assert _processes_with(str(pytester.path / "tmp")) == []
    assert [path for path in pytester.path.glob("tmp/**/*") if path.is_file() and "lock" not in path.name] == []
    assert not (pytester.path / "baselines").exists()


def test_killed_parent_leaves_nothing_behind(repository, cold):
    """When pytest itself is killed with SIGKILL, the ranks and their working folder are gone within seconds."""
    pytester = repository("gpt2_tiny-ddp-cpu_x2")
    environment = dict(os.environ, TMPDIR=str(pytester.mkdir("tmp")))
    command = [sys.executable, "-m", "pytest", "--perf", "--perf-steps=100000"]
    run = subprocess.Popen(command, cwd=pytester.path, env=environment, stdout=subprocess.DEVNULL)
    _wait_until(lambda: any(_step_of(path) > 5 for path in pytester.path.glob("tmp/**/cell-*/*.progress")))
    run.kill()
    run.wait()

    _wait_until(lambda: not _processes_with(str(pytester.path / "tmp")))
    _wait_until(lambda: not list(pytester.path.glob("tmp/**/cell-*")))


def test_benchmark_holds_the_real_steps(repository):
    """pytest-benchmark's JSON has the ranks' own step times, and memory and FLOP/s next to them."""
    pytester = repository(CELL, fixtures=", benchmark")
    perf(pytester, "--perf-update=new", "--perf-report=report.jsonl", "--benchmark-json=benchmark.json")
    report = json.loads((pytester.path / "report.jsonl").read_text().splitlines()[1])
    benchmark = json.loads((pytester.path / "benchmark.json").read_text())["benchmarks"][0]
    readings = report["measurement"]["readings"]

    assert benchmark["stats"]["data"] == pytest.approx(readings["step_time_seconds"]["samples"])
    assert benchmark["extra_info"]["peak_memory_bytes"] == readings["peak_memory_bytes"]["value"]
    assert benchmark["extra_info"]["flops_per_rank"] == readings["flops_per_rank"]["value"]


@pytest.mark.slow
def test_xdist_reports_every_cell_once(repository):
    """With -n 2 the controller's table and report hold the cells of both workers."""
    other = "llama_tiny-single-cpu_x1"
    pytester = repository(CELL, other)
    result = apart(pytester, "-n2", "--perf-update=new", "--perf-report=report.jsonl")
    lines = (pytester.path / "report.jsonl").read_text().splitlines()[1:-1]

    result.assert_outcomes(passed=2)
    assert sorted(json.loads(line)["measurement"]["cell"] for line in lines) == sorted([CELL, other])
    for cell in (CELL, other):
        result.stdout.fnmatch_lines([f"*{cell}*MiB*"])


def test_printed_numbers_are_the_measured_ones(repository):
    """The table's peak memory and step time are the report's, converted."""
    pytester = repository(CELL)
    result = perf(pytester, "--perf-update=new", "--perf-report=report.jsonl")
    readings = json.loads((pytester.path / "report.jsonl").read_text().splitlines()[1])["measurement"]["readings"]
    table = result.stdout.str().split("training performance")[1]

    assert float(re.findall(r"([\d.]+) MiB", table)[0]) == round(readings["peak_memory_bytes"]["value"] / 2**20, 2)
    shown = float(re.findall(r"([\d.]+) ms", table)[0])
    assert shown == pytest.approx(readings["step_time_seconds"]["value"] * 1e3, rel=5e-3)


def test_out_of_memory_is_red(repository):
    """A capacity that is too small is an outcome of its own: red, with the bytes that are missing."""
    result = perf(repository(CELL), "--perf-capacity=3MiB")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*oom*"])


@pytest.mark.parametrize(
    ("cell", "complaint"),
    [
        ("t5_bse-single-cpu_x1", "*No model named 't5_bse'. Did you mean 't5_base'?*"),
        ("t5_tiny-zero_3-cpu_x2", "*No engine named 'zero_3'. Did you mean 'zero3'?*"),
        ("t5_tiny-zero3+bf61-cpu_x2", "*No technique named 'bf61'. Did you mean 'bf16'?*"),
        ("t5_tiny-single-h20k_x1", "*No hardware named 'h20k'. Did you mean 'h20'?*"),
        ("t5_tiny-single-cpu_x2", "*single runs on at most 1 rank, cpu_x2 has 2.*"),
        ("t5_tiny", "*'t5_tiny' is not a cell: write model-strategy-hardware*"),
    ],
)
def test_unknown_names_teach(repository, cell, complaint):
    """A name that does not exist stops the collection with one sentence and no traceback."""
    result = perf(repository(cell))

    assert result.ret != 0
    result.stdout.fnmatch_lines([complaint])
    result.stdout.no_fnmatch_line("*Traceback*")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--perf-capacity=lots",), "*'lots' is not an amount of memory*24GiB*"),
        (("--perf-steps=0",), "*--perf-steps: '0' is below 1*"),
        (("-o", "perf_launches=0"), "*perf_launches: '0' is below 1*"),
        (("-o", "perf_launches=-3"), "*perf_launches: '-3' is not a count*"),
        (("--perf-hardware=h20k_x1",), "*Did you mean 'h20'?*"),
        (("--perf-update=new", "--perf-capacity=1GiB"), "*a baseline is for the hardware*"),
        (("--perf-update=regressed",), "*say why in --perf-reason*"),
        (("--perf-reason=why",), "*--perf-reason needs --perf-update*"),
        (("--perf-update=regressed", "--perf-reason=…"), "*gives no reason: write why*"),
        (("--perf-against=",), "*--perf-against: '' is no environment: write a git revision*"),
        (("--perf-against=git:nope",), "*'nope' is not a git revision*"),
        (("--perf-against=msgspec==",), "*is not a requirement: write name==version*"),
        (("--perf-hardware=cpu_2",), "*No hardware named 'cpu_2'. Did you mean 'cpu_x2'*"),
        (("-o", "perf_warmup=many"), "*perf_warmup: 'many' is not a count*"),
        (("-o", "perf_open=maybe"), "*perf_open: No choice of open named 'maybe'*Known: fail, pass*"),
        (("-o", "perf_time_tolerance=0"), "*perf_time_tolerance: '0' is not a number above 0*"),
        (("-o", "perf_busy_share=2"), "*perf_busy_share: '2' is not a share from 0 to 1*"),
        (("-o", "perf_catalog=nowhere"), "*nowhere, which is not a folder*"),
    ],
)
def test_bad_options_teach(repository, options, complaint):
    """A bad option or ini value gives one clear sentence and a non-zero exit."""
    result = repository(CELL).runpytest_inprocess("--perf", *options)

    assert result.ret != 0
    assert re.search(complaint.replace("*", ".*").replace("?", r"\?"), result.stdout.str() + result.stderr.str())
    assert "Traceback" not in result.stdout.str() + result.stderr.str()


def test_a_commit_with_the_same_files_says_what_was_compared(repository):
    """A variable may have changed since a stored run. That is another question."""
    here = repository(CELL)
    (here.path / ".gitignore").write_text("__pycache__\n")
    for words in (["init", "-q"], ["add", "-A"], ["-c", "user.name=a", "-c", "user.email=a", "commit", "-qm", "a"]):
        subprocess.run(["git", *words], cwd=here.path, check=True)
    result = perf(here, "--perf-against=HEAD")

    assert result.ret == 0
    result.stdout.fnmatch_lines(["*no file of the repository differs from that commit, and all else is this run's on*"])


@pytest.mark.parametrize("options", [(), ("--perf",)])
def test_a_marker_without_the_fixture_is_an_error(pytester, options):
    """It would train nothing: a test that passes, or that is deselected without a word."""
    pytester.makepyfile(f"import pytest\n@pytest.mark.perf_cell({CELL!r})\ndef test_it(): pass")
    run = pytester.runpytest_inprocess(*options, "-p", "no:cacheprovider")

    run.assert_outcomes(errors=1)
    run.stdout.fnmatch_lines(["*takes the fixture: def test_it(perf_cell): perf_cell.check()*"])


def test_absent_hardware_is_skipped_with_the_reason(repository):
    """A cell for a GPU that is not here is skipped, and says what is here."""
    result = perf(repository("t5_tiny-single-h200_x1"), "-rs")

    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*h200_x1 is not here: this machine has *"])


def test_absent_hardware_that_was_asked_for_is_red(repository):
    """A runner whose GPU has gone is not green because all of its cells were skipped."""
    result = perf(repository(CELL), "--perf-hardware=h200_x1")

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        [
            "h200_x1 is not here: this machine has *--perf-hardware=h200_x1 needs it*",
            "gpt2_tiny-single-h200_x1  failed  h200_x1 is not here: this machine has *",
        ]
    )
    result.stdout.no_fnmatch_line("Egpt2_tiny*")  # pytest's letter for an error


@pytest.mark.parametrize(
    ("options", "cells"),
    [
        ((), ["gpt2_tiny-single-cpu_x1", "gpt2_tiny-ddp-cpu_x2"]),
        (("--perf-hardware=cpu_x1",), ["gpt2_tiny-single-cpu_x1", "gpt2_tiny-ddp-cpu_x1"]),
        (
            ("--perf-hardware=cpu_x2,cpu_x1",),
            ["gpt2_tiny-ddp-cpu_x2", "gpt2_tiny-ddp-cpu_x1", "gpt2_tiny-single-cpu_x1"],
        ),
        (("--perf-hardware=cpu_x2",), ["gpt2_tiny-ddp-cpu_x2", "gpt2_tiny-single-cpu_x1"]),
        (("--perf-hardware=h200_x1",), ["gpt2_tiny-single-h200_x1", "gpt2_tiny-ddp-h200_x1"]),
        (("--perf-hardware=gpus",), ["no-cell"]),
    ],
)
def test_hardware_option_moves_the_grid(repository, options, cells):
    """The cells go to the hardware that the option names, as far as their engines fit there."""
    pytester = repository("gpt2_tiny-single-cpu_x1", "gpt2_tiny-ddp-cpu_x2")
    result = pytester.runpytest_inprocess("--perf", "--co", "-q", *options)
    collected = re.findall(r"test_cell\[(.*)\]", result.stdout.str())

    assert sorted(collected) == sorted(cells)


def test_grid_on_gpus_that_are_not_here(repository):
    """A grid on ``gpus`` collects on a machine without one, or with one that no catalog knows, and says so."""
    pytester = repository(CELL)
    marker = 'perf_cell(models=["t5_base"], strategies=["single"], hardware=["gpus"])'
    support = str(Path(__file__).parents[1] / "support")
    driver = f"sys.path.append({support!r})\nfrom fake_driver import FakeGpu, install\n"
    gpu = "install([FakeGpu('NVIDIA GeForce GTX 1080', 8192)])\n"
    test = f"@pytest.mark.{marker}\ndef test_it(perf_cell): perf_cell.check()"
    pytester.makepyfile(test_perf=f"import sys\nimport pytest\n{driver}{gpu}{test}")
    result = apart(pytester, "-rs")

    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*no known GPU here*"])


def test_a_baseline_that_the_ledger_did_not_accept_is_red(repository):
    """It was changed by hand, by less than any rule sees: what got worse would be green."""
    pytester = repository(CELL)
    recorded = perf(pytester, "--perf-update=new")
    path = baseline_of(pytester, CELL)
    path.write_text(path.read_text() + "\n")
    edited = perf(pytester)

    recorded.assert_outcomes(passed=1)
    edited.assert_outcomes(failed=1)
    edited.stdout.fnmatch_lines(["*is not what the ledger accepted*Restore it from git*"])


def test_no_setting_accepts_for_every_run(repository):
    """Nothing would be red again, and nobody would have said so."""
    pytester = repository(CELL)
    pytester.makeini("[pytest]\naddopts = --perf-update=all --perf-reason=always")
    result = perf(pytester)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*addopts of *tox.ini has --perf-update: each run would accept what it finds."])


@pytest.mark.slow
def test_consent_to_what_improved_is_none_to_what_regressed(repository):
    """A cell that got faster but needs more memory is not accepted by --perf-update=improved."""
    pytester = repository(CELL)
    perf(pytester, "-o", "perf_launches=3", "--perf-update=new")
    path = baseline_of(pytester, CELL)
    readings = (changed := json.loads(path.read_text()))["measurement"]["readings"]
    time, peak = readings["step_time_seconds"], readings["peak_memory_bytes"]
    time["samples"], time["value"] = [1e6 * seconds for seconds in time["samples"]], 1e6 * time["value"]
    less = peak["parts"]["activations"] // 2
    peak["value"], peak["parts"]["activations"] = peak["value"] - less, peak["parts"]["activations"] - less
    write_accepted(path, changed)
    result = perf(pytester, "-o", "perf_time_tolerance=1000", "--perf-update=improved")

    result.assert_outcomes(failed=1)
    assert path.read_text() == json.dumps(changed)


ENGINE = """
from my_engines import Mine
from perfsuite.catalog.definitions import Engine

ENGINES = (Engine(name="mine", trainer=Mine, source="our own"),)
"""
TRAINER = """
from perfsuite.engines.ddp import DistributedDataParallel

class Mine(DistributedDataParallel):
    pass
"""


def test_a_users_own_engine_is_one_file(repository):
    """An engine in the user's catalog folder, built on the user's own package, trains like perfsuite's."""
    pytester = repository("gpt2_tiny-mine-cpu_x2")
    pytester.makeini("[pytest]\nperf_catalog = perf\npythonpath = .")
    pytester.makepyfile(my_engines=TRAINER)
    pytester.mkdir("perf").joinpath("engines").mkdir()
    (pytester.path / "perf" / "engines" / "mine.py").write_text(ENGINE)
    result = perf(pytester, "--perf-update=new")

    result.assert_outcomes(passed=1)


def test_the_examples_of_the_docs_run(repository):
    """The engine, the technique, the metric and the rule of docs/own_parts.md train a cell; the rule turns it red."""
    pytester = repository()
    pytester.makeini("[pytest]\nperf_time_tolerance = 1000\nperf_catalog = perf")
    page = (ROOT / "docs" / "own_parts.md").read_text()
    for text in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        path = pytester.path / re.findall(r"^# (\S+)", text)[0]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    recorded = perf(pytester, "--perf-update=new", "test_mine.py")
    path = baseline_of(pytester, "gpt2_tiny-small_buckets+frozen_norms-cpu_x2")
    changed = json.loads(path.read_text())
    reading = changed["measurement"]["readings"]["modules"]
    reading["value"] //= 2
    write_accepted(path, changed)
    red = perf(pytester, "test_mine.py")

    recorded.assert_outcomes(passed=1)
    assert changed["measurement"]["engine"]["bucket_bytes"] == 2**20
    red.assert_outcomes(failed=1)
    red.stdout.fnmatch_lines(["*; 1 of * metrics regressed*", "*modules *allowed +10.0 %*REGRESSED*"])


def test_a_mistake_in_a_users_own_file_stops_collection(repository):
    """A rule that nobody defines is refused before anything trains."""
    pytester = repository(CELL)
    pytester.makeini("[pytest]\nperf_catalog = perf")
    (pytester.path / "perf" / "meters").mkdir(parents=True)
    (pytester.path / "perf" / "meters" / "mine.py").write_text(
        "from perfsuite.catalog.definitions import Metric\n"
        "METER = object\nMETRICS = (Metric(name='mine', title='mine', unit='number', hold='exakt'),)\n"
    )
    result = perf(pytester)

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*mine.py: the metric 'mine': No rule named 'exakt'. Did you mean 'exact'?*"])


MODEL = '''
"""A user's own model, and no transformers."""

import types

import torch


class Regression(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(64, 16)
        self.head = torch.nn.Linear(16, 64)

    def forward(self, input_ids, attention_mask, labels):
        logits = self.head(self.embedding(input_ids))[:, :-1]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten())
        return types.SimpleNamespace(loss=loss)


def build(definition):
    return Regression()
'''
CONFTEST = """
from perfsuite import Model, Workload

def pytest_perf_models(config):
    return [
        Model(
            name="my_model",
            family="mine",
            task="causal_lm",
            source="my own",
            workload=Workload(micro_batch=2, sequence_length=8),
            parameters=64 * 16 + 16 * 64 + 64,
            vocabulary=64,
            build="my_package:build",
        )
    ]
"""


def test_a_users_own_model_is_a_cell(repository):
    """A conftest declares a model of its own repository, and it trains under DDP like any other."""
    cell = "my_model-ddp-cpu_x2"
    pytester = repository(cell, conftest=CONFTEST)
    pytester.makepyfile(my_package=MODEL)
    result = perf(pytester, "--perf-update=new")

    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["The code of my_model is not committed,*"])
    assert baseline_of(pytester, cell).exists()


def _wait_until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def _step_of(path):
    from perfsuite.records.progress import read_progress

    return read_progress(path).step


def _processes_with(text):
    """Pids of living processes whose environment or command line has the text."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            seen = (process / "environ").read_bytes() + (process / "cmdline").read_bytes()
            alive = (process / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            continue
        if alive and text.encode() in seen and int(process.name) != os.getpid():
            found.append(int(process.name))
    return found


SPLIT = """
[pytest]
testpaths = cells others
perf_testpaths = cells
"""
BROKEN = "import no_such_package"


@pytest.fixture
def split(pytester):
    """A repository whose cells need less than its other tests, which cannot even be imported here."""
    pytester.makeini(SPLIT)
    test = TEST.format(cells=repr(CELL), fixtures="")
    for path, text in (("cells/test_perf", test), ("others/conftest", BROKEN), ("others/test_other", BROKEN)):
        pytester.path.joinpath(f"{path}.py").parent.mkdir(exist_ok=True)
        pytester.path.joinpath(f"{path}.py").write_text(text)
    return pytester


@pytest.mark.parametrize("workers", [[], ["-n1"]], ids=["alone", "xdist"])
def test_with_perf_only_perf_testpaths_are_imported(split, workers):
    """Not even the conftest of the other tests, which pytest reads before any hook of collection."""
    result = split.runpytest_subprocess("--perf", "--perf-hardware=b200_x1", *workers)

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*b200_x1 is not here*"])


def test_without_perf_testpaths_are_as_ever(split):
    """Plain pytest collects what testpaths names."""
    result = split.runpytest_subprocess()

    result.stderr.fnmatch_lines(["*others/conftest.py*", "*no_such_package*"])


def test_a_path_on_the_command_line_comes_before_perf_testpaths(split):
    """What is named is collected, and nothing else."""
    split.makepyfile(test_mine=TEST.format(cells="'t5_tiny-single-cpu_x1'", fixtures=""))
    result = split.runpytest_subprocess("--perf", "--collect-only", "-q", "test_mine.py")

    result.stdout.fnmatch_lines(["test_mine.py::test_cell?t5_tiny-single-cpu_x1?", "*1 test collected*"])


BLOCK = """
import sys
import pytest

class Absent:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in {names}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
"""


def test_the_suite_extra_is_enough_to_collect_the_cells():
    """This project's own cells, where no package is that its tests alone need."""
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    modules = {"hypothesis", "yaml", "pypi_simple", "pytest_timeout", *known["test"]} - set(known["suite"])
    blocked = BLOCK.format(names=sorted(modules))
    options = [
        "--perf",
        "--collect-only",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:hypothesispytest",
        "-p",
        "no:timeout",
    ]
    code = f"{blocked}sys.exit(pytest.main({options}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "100 tests collected" in done.stdout and "warning" not in done.stdout
