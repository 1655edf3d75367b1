"""What a whole run prints and writes, with results that are made up: nothing is trained."""

import io
import os
import pty
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import msgspec
import pytest
from gate_samples import GIB, LAUNCH, baseline, measurement, memory

from perfsuite.catalog.cell import parse_cell
from perfsuite.catalog.registry import Catalog
from perfsuite.cli.main import main
from perfsuite.compare.judge import judge
from perfsuite.plugin.perf_run import PerfRun
from perfsuite.plugin.terminal import Pace
from perfsuite.rank.flags import own_code
from perfsuite.records import codec, report_lines
from perfsuite.records.measurement import OWN_CODE
from perfsuite.records.packed import pack
from perfsuite.records.progress import Progress
from perfsuite.records.report_lines import RunCoverage
from perfsuite.records.result import Result
from perfsuite.records.verdict import EvidenceTrace, TraceKind
from perfsuite.run.against import Against
from perfsuite.run.gatekeeper import Gatekeeper
from perfsuite.run.imports import hash_of
from perfsuite.show.text.live import LiveLine
from perfsuite.system.deadline import check

CELLS = [
    f"{model}-{strategy}-cpu_x{ranks}"
    for model in ("gpt2_tiny", "llama_tiny", "bloom_tiny", "t5_tiny", "gpt2_tiny_l4", "bloom_tiny_cls")
    for strategy in ("ddp", "ddp+bf16", "zero3+bf16+ckpt+acc2", "fsdp2+bf16+ckpt+acc2", "ddp+hf_trainer+quickstart")
    for ranks in (2, 4)
]
TEST = """
import pytest

@pytest.mark.perf_cell({cells})
def test_cell(perf_cell{fixtures}):
    perf_cell.check()
"""


def made_up(cell, metrics, number=0):
    """Green, slower, fatter and failed cells in turn."""
    new = [
        measurement(),
        measurement(peak_memory_bytes=memory(22 * GIB)),
        measurement("failed"),
        measurement("oom"),
    ][number % 4]
    verdict = judge(new, baseline(), metrics, strategy="zero3")
    verdict = msgspec.structs.replace(verdict, cell=cell)
    return Result(measurement=msgspec.structs.replace(new, cell=cell), baseline=baseline(), verdict=verdict)


@pytest.fixture
def repository(pytester, monkeypatch):
    """A user's repository with these cells, whose results are made up."""

    def measure(self, cell, request):
        number = CELLS.index(cell.id) if cell.id in CELLS else 0
        known = [metric for metric in self.output.metrics if metric.name in measurement().readings]
        return made_up(cell.id, known, number)

    def make(cells, fixtures=""):
        pytester.makepyfile(test_perf=TEST.format(cells=", ".join(map(repr, cells)), fixtures=fixtures))
        return pytester

    monkeypatch.setattr(PerfRun, "measure", measure)
    monkeypatch.delenv("CI", raising=False)
    return make


def perf(pytester, *options):
    return pytester.runpytest_inprocess("--perf", "-p", "no:cacheprovider", *options)


def collected(pytester, *options):
    """The cells that these options choose, in their order; the exit code; and all that is printed."""
    result = perf(pytester, "--collect-only", "-q", *options)
    return re.findall(r"test_cell\[(.*)\]", result.stdout.str()), result.ret, result.stdout.str()


@pytest.mark.parametrize("columns", ["80", "200"])
def test_a_run_of_sixty_cells_fits_100_columns(repository, monkeypatch, columns):
    """Every line of it: of the cells as they come, of the table, and none of pytest-benchmark's table."""
    monkeypatch.setenv("COLUMNS", columns)
    printed = perf(repository(CELLS, ", benchmark"), "--tb=no", "-r", "", "--disable-warnings").stdout.str()
    lines = printed[printed.index("collected") :].splitlines()
    ours = [line for line in lines if not line.startswith("=") and "%]" not in line]  # pytest's own

    assert len(CELLS) == 60
    assert max(map(len, ours)) <= 100
    assert [cell for cell in CELLS if printed.count(cell + " ") != 2] == []
    assert "benchmark 'step time'" not in printed


def test_pytest_benchmark_s_table_is_there_for_who_asks(repository):
    """With any of its options."""
    result = perf(repository(CELLS[:1], ", benchmark"), "--benchmark-columns=min,max")

    result.stdout.fnmatch_lines(["*benchmark 'step time': 1 tests*"])


def test_a_log_says_how_far_it_is(repository):
    """A plain line per cell, with its number and the time that is left once a cell has ended; no color."""
    lines = perf(repository(CELLS[:3])).stdout.lines
    found = [re.search(r"\((\d/3)(, about \d+ s left)?\)$", line) for line in lines]

    assert [match[1] for match in found if match] == ["1/3", "2/3", "3/3"]
    assert "\x1b" not in "".join(lines)


def test_junit_has_what_people_read(repository):
    """A property for each column and the status; no JSON; of a failed cell the status alone."""
    cells = [CELLS[0], CELLS[2]]
    perf(repository(cells), "--junitxml=junit.xml")
    good, failed = (
        {one.get("name"): one.get("value") for one in case.iter("property")}
        for case in ElementTree.parse("junit.xml").iter("testcase")
    )

    assert {"perfsuite status": "ok", "perfsuite peak memory": "20.00 GiB (=)"}.items() <= good.items()
    assert failed == {"perfsuite status": "failed"}
    assert "{" not in Path("junit.xml").read_text().partition("<failure")[0]


COLORED = f"""
import pytest, sys
sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parents[1] / "support")]!r}
from perfsuite.plugin.perf_run import PerfRun
from test_run_output import made_up, measurement

def measure(self, cell, request):
    return made_up(cell.id, [one for one in self.output.metrics if one.name in measurement().readings])

PerfRun.measure = measure
"""


@pytest.mark.parametrize(
    ("variables", "colored"), [({}, True), pytest.param({"NO_COLOR": "1"}, False, marks=pytest.mark.slow)]
)
def test_colors_are_for_terminals(repository, monkeypatch, variables, colored):
    """A real one; NO_COLOR switches them off, and the summary has the same words."""
    pytester = repository(CELLS[:1])
    pytester.makeconftest(COLORED)
    monkeypatch.delenv("PY_COLORS")  # pytester's
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", **variables}
    command = [sys.executable, "-m", "pytest", "--perf", "-p", "no:cacheprovider"]
    process = subprocess.Popen(command, stdout=theirs, stderr=theirs, stdin=theirs, env=environment, cwd=pytester.path)
    os.close(theirs)
    printed = b""
    while part := _read(ours):
        printed += part
    os.close(ours)
    assert process.wait() == 0, printed.decode()
    table = printed.decode().partition("training performance")[2]

    assert ("\x1b[32mok\x1b[0m" in table) == colored
    assert CELLS[0] in table


def _read(terminal):
    try:
        return os.read(terminal, 4096)
    except OSError:  # the process has ended
        return b""


def test_a_green_cell_s_trace_is_named_with_its_viewer(repository, monkeypatch):
    """No text of a failure names it. Of several cells the first stands for all."""
    traces = [EvidenceTrace(kind=TraceKind.PERFETTO, path="perf-traces/a.json.gz")]
    measure = PerfRun.measure

    def traced(self, cell, request):
        result = measure(self, cell, request)
        return msgspec.structs.replace(result, verdict=msgspec.structs.replace(result.verdict, traces=traces))

    pytester = repository([CELLS[0], CELLS[4]])
    monkeypatch.setattr(PerfRun, "measure", traced)
    result = perf(pytester, "--perf-trace=all")

    result.assert_outcomes(passed=2)
    first = "trace: perf-traces/a.json.gz: open it in https://ui.perfetto.dev"
    result.stdout.fnmatch_lines([first, "traces of 1 more cell: perf-traces"])


def test_shards_share_the_cells(repository):
    """Each cell is in one of them; -k chooses before; one without a cell is no success, and says so."""
    pytester = repository(CELLS[:5])
    shards = [collected(pytester, f"--perf-shard={number}/2")[0] for number in (1, 2)]
    assert sorted(cell for shard in shards for cell in shard) == sorted(CELLS[:5])
    cells, status, printed = collected(pytester, "--perf-shard=2/2", "-k", CELLS[0])
    assert (cells, status) == ([], pytest.ExitCode.NO_TESTS_COLLECTED)
    assert "--perf-shard=2/2: 0 of 1 cell, " in printed
    assert "durations: 1 cell without a record, as the median" in printed


@pytest.mark.slow
def test_a_choice_is_told_with_xdist_too(repository):
    """Once, although every worker makes it; and an empty one is no success."""
    pytester = repository(CELLS[:2])
    pytester.makeconftest(COLORED)
    result = perf(pytester, "-n2", "--perf-shard=1/2")
    result.assert_outcomes(passed=1)
    assert result.stdout.str().count("--perf-shard=1/2: 1 of 2 cells, ") == 1
    assert perf(pytester, "-n1", "--perf-shard=9/9").ret == pytest.ExitCode.NO_TESTS_COLLECTED


def history(pytester, **seconds):
    """A report of these cells, each of which took so long; the second and each later one was red."""
    metrics = ()
    lines = []
    for number, (cell, cost) in enumerate(seconds.items()):
        one = made_up(cell, metrics, number=0)
        status = "regressed" if number else "ok"
        verdict = msgspec.structs.replace(one.verdict, cell=cell, status=status, lines=[])
        launch = msgspec.structs.replace(LAUNCH, date="2026-11-20T00:00:00+00:00")
        record = msgspec.structs.replace(
            one.measurement,
            launches=[launch],
            imports=pack({"test_perf.py": hash_of(pytester.path / "test_perf.py")}),
            versions={},
            flags={OWN_CODE: own_code()},
        )
        lines.append(codec.encode_line(Result(measurement=record, baseline=None, verdict=verdict, seconds=cost)))
    (pytester.path / "history.jsonl").write_text("\n".join(lines) + "\n")
    return "-operf_history=history.jsonl"


def test_a_budget_takes_what_tells_most_per_minute(repository):
    """The cell that moved before the one that did not, and nothing that does not fit."""
    pytester = repository(CELLS[:3])
    past = history(pytester, **dict(zip(CELLS[:3], (60.0, 60.0, 600.0), strict=True)))
    cells, status, printed = collected(pytester, "--perf-budget=3min", past)

    assert (cells, status) == ([CELLS[1], CELLS[0]], 0)
    assert "--perf-budget=3 min: 2 of 3 cells, 2 min of 12 min; the most informative per minute come first" in printed
    assert "durations: 3 cells from 1 report" in printed and "-o perf_history=FILE" not in printed


def test_a_budget_below_the_cheapest_cell_is_refused(repository):
    """A run of nothing would be green. A shard without a cell has nothing to fit."""
    pytester = repository(CELLS[:2])
    past = history(pytester, **dict(zip(CELLS[:2], (21.0, 60.0), strict=True)))
    result = perf(pytester, "--perf-budget=5s", past)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    told = f"--perf-budget=5 s is less than the cheapest cell takes, 21 s: {CELLS[0]}. Give it more time."
    assert told in result.stderr.str() + result.stdout.str()
    cells, status, printed = collected(pytester, "--perf-budget=5s", "--perf-shard=9/9", past)
    assert (cells, status) == ([], pytest.ExitCode.NO_TESTS_COLLECTED)
    assert "0 of 2 cells, 0 s of " in printed and "--perf-budget" not in printed


def test_a_run_of_nothing_replaces_the_files_of_an_earlier_one(repository):
    """A shard without a cell says so, in its report and page; a listing of the cells writes nothing."""
    pytester = repository(CELLS[:1])
    files = [pytester.path / name for name in ("run.jsonl", "run.html")]
    for file in files:
        file.write_text("earlier")
    options = ("--perf-shard=2/2", "--perf-report=run.jsonl", "--perf-html=run.html")
    collected(pytester, *options)
    assert [file.read_text() for file in files] == ["earlier"] * 2

    assert perf(pytester, *options).ret == pytest.ExitCode.NO_TESTS_COLLECTED
    assert report_lines.coverage_of(files[0]) == RunCoverage(known=True, exit_status=pytest.ExitCode.NO_TESTS_COLLECTED)
    assert "No cell has a result." in files[1].read_text()


def test_a_budget_that_is_used_up_skips_the_rest(repository, monkeypatch, capsys):
    """The machine may be slower than the one of the records. What was left out is no success, also for a reader."""
    pytester = repository(CELLS[:2])
    monkeypatch.setattr("perfsuite.plugin.perf_run.PerfRun.pytest_runtest_teardown", _long, raising=False)
    result = perf(pytester, "--perf-budget=1h", "--perf-report=run.jsonl")
    capsys.readouterr()

    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(
        [
            "1 skipped: the 60 min of --perf-budget are used up",
            "--perf-budget left out 1 cell of those chosen, so this run is no success.*",
        ]
    )
    assert result.ret == 10
    assert main(["summary", str(pytester.path / "run.jsonl")]) == 1
    assert "The run has no result of some cells, but no cell of its report is red." in capsys.readouterr().out


def _long(self, item):
    self.begin -= 3601


def test_a_budget_ends_the_cell_that_runs(pytester, monkeypatch):
    """Whatever it waits for; the cells after it do not begin, and a run that compared nothing is no success."""

    def hold(self, cell, *_, **__):
        while True:
            check()
            time.sleep(0.01)

    monkeypatch.setattr(Gatekeeper, "check", hold)
    pytester.makepyfile(test_perf=TEST.format(cells=", ".join(map(repr, CELLS[:2])), fixtures=""))
    monkeypatch.setattr("perfsuite.plugin.perf_run.PerfRun.pytest_runtest_setup", _almost, raising=False)
    result = perf(pytester, "--perf-budget=1h", "--perf-report=run.jsonl")
    reasons = list(report_lines.coverage_of(pytester.path / "run.jsonl").skipped.values())

    result.assert_outcomes(skipped=2)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert reasons == [f"{USED_UP}, and the cell that was running was ended", USED_UP]


USED_UP = "the 60 min of --perf-budget are used up"


def _almost(self, item):
    self.begin = min(self.begin, time.monotonic() - 3599.5)


def test_a_budget_ends_an_environment_that_is_built(pytester, monkeypatch):
    """--perf-against needs it for every cell, so none can be compared."""

    def prepare(self, *_):
        while True:
            check()
            time.sleep(0.01)

    monkeypatch.setattr(Against, "prepare", prepare)
    pytester.makepyfile(test_perf=TEST.format(cells=repr(CELLS[0]), fixtures=""))
    result = perf(pytester, "--perf-budget=1s", "--perf-against=msgspec==0.1")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--perf-against=msgspec==0.1: the 1 s of --perf-budget are used up"])


def test_what_no_change_can_reach_does_not_run(repository):
    """Only the cell without a record runs, until the test itself changes; then all do. An empty run passes."""
    pytester = repository(CELLS[:3])
    past = history(pytester, **dict.fromkeys(CELLS[:2], 1.0))
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@localhost"]
    for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "x"]):
        subprocess.run([*git, *words], cwd=pytester.path, check=True)
    cells, _, printed = collected(pytester, "--perf-changed", past)
    assert cells == [CELLS[2]]
    assert "--perf-changed=HEAD: 2 of 3 cells left out: nothing that they import has changed since " in printed
    assert "  1 cell to run: no record of what it imports" in printed
    assert "  a report of an earlier run has one: pass it as -o perf_history=FILE" in printed
    assert perf(pytester, "--perf-changed", past, "-k", CELLS[0]).ret == 0
    with (pytester.path / "test_perf.py").open("a") as file:
        file.write("\nNEW = 1\n")
    cells, _, printed = collected(pytester, "--perf-changed", past)
    assert cells == CELLS[:3]
    assert "--perf-changed=HEAD: none of 3 cells is left out. Every cell is run, for the reasons below." in printed
    assert "  2 cells to run: test_perf.py changed" in printed


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("--perf-shard=9/8", "'9/8' is not a shard: write its number and how many there are"),
        ("--perf-budget=20", "'20' is not a duration: write a number and a unit of s, min, h, e.g. 20min"),
        ("--perf-changed=nope", "is in no git repository, so it has no revisions"),
        ("-operf_history=nope", "nope, which does not exist"),
    ],
)
def test_a_wrong_choice_teaches(repository, option, told):
    """One sentence, and nothing runs."""
    result = perf(repository(CELLS[:1]), option)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert told in result.stderr.str() + result.stdout.str()


def test_the_pace_is_that_of_this_run():
    """Recorded seconds, then what the run makes of them; a test without a record counts as the usual one."""
    pace = Pace({"a": 10.0, "b": 30.0, "c": None, "d": 20.0})
    assert pace.seconds_left(0.0) == 80.0
    pace.done("a")
    assert pace.seconds_left(20.0) == 140.0  # twice as slow as recorded
    assert str(pace).startswith("1/4, about ")
    for name in "bcd":
        pace.done(name)
    assert str(pace) == "4/4"


def test_without_records_the_first_test_gives_the_pace():
    """Before that nothing is known, and nothing is said."""
    pace = Pace({"a": None, "b": None, "c": None})
    assert str(pace) == "0/3"
    pace.done("a")
    assert pace.seconds_left(5.0) == 10.0
    assert str(Pace({})) == ""


def test_the_live_line_says_what_is_left(monkeypatch):
    """Before the cell and its step; a narrow terminal cuts the end, and the next cell writes over it."""
    terminal = io.StringIO()
    monkeypatch.setattr("perfsuite.show.text.live._open_terminal", lambda: terminal)
    live = LiveLine(lambda cell: 19, lambda: "3/11, about 2 min left")
    cell = parse_cell(CELLS[0], Catalog())
    live.show(cell, [Progress(marks=9, step=7, phase="forward"), Progress(marks=8, step=6, phase="forward")], 3.2)
    assert terminal.getvalue().strip() == f"3/11, about 2 min left  {CELLS[0]}  step 6/19  3.2 s"
    live.close()
    assert terminal.getvalue().endswith("\b")


def test_a_plan_of_fixtures_is_no_success(repository):
    """pytest's --setup-plan runs no test, perhaps in addopts."""
    pytester = repository(CELLS[:1])

    assert perf(pytester, "--setup-plan").ret == pytest.ExitCode.TESTS_FAILED
    for question in ("--collect-only", "--fixtures", "--fixtures-per-test", "--cache-show"):
        assert pytester.runpytest_inprocess("--perf", question).ret == pytest.ExitCode.OK
