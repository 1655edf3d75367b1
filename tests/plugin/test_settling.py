"""What is open when a test ends: its reports wait until one question for the whole run has settled them."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from perfsuite.plugin import perf_run
from perfsuite.records import report_lines
from perfsuite.records.result import Result
from perfsuite.run.gatekeeper import Gatekeeper

ONE, OTHER, THIRD = "gpt2_tiny-single-cpu_x1", "t5_tiny-single-cpu_x1", "llama_tiny-single-cpu_x1"
TEST = """
import pytest

@pytest.mark.perf_cell({cells})
def test_cell(perf_cell):
    {body}
"""
CHECK = "perf_cell.check()"


class Suite:
    """``suite({cell: [first status, status after the question]}, *options)`` runs a test of these cells."""

    def __init__(self, pytester, monkeypatch):
        self.pytester, self.monkeypatch, self.file = pytester, monkeypatch, pytester.path / "log"
        self.more = ""  # of the conftest
        monkeypatch.setenv("SETTLED_LOG", str(self.file))
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))

    def __call__(self, settled, *options, body=CHECK, apart=False, file=TEST):
        self.monkeypatch.setenv("SETTLED", json.dumps(settled))
        self.pytester.makepyfile(test_perf=file.format(cells=", ".join(map(repr, settled)), body=body))
        self.pytester.makeconftest(f"import settled_cells\nsettled_cells.put()\n{self.more}")
        self.file.write_text("")
        run = self.pytester.runpytest_subprocess if apart else self.pytester.runpytest_inprocess
        return run("--perf", *options)

    def log(self):
        """What the gatekeeper was asked, without limits."""
        return [line.partition(" within")[0] for line in self.raw().splitlines()]

    def raw(self):
        """All that it was asked."""
        return self.file.read_text()


@pytest.fixture
def suite(pytester, monkeypatch):
    """A user's tests, whose verdicts are told."""
    monkeypatch.setitem(vars(perf_run), "Gatekeeper", Gatekeeper)  # put back after the test
    return Suite(pytester, monkeypatch)


def results(path: Path) -> dict[str, str]:
    """The status of each cell in the report's lines."""
    lines = [report_lines.decode_line(line, "the report") for line in path.read_bytes().splitlines()]
    return {line.verdict.cell: str(line.verdict.status) for line in lines if isinstance(line, Result)}


def test_one_question_after_all_tests(suite):
    """Every cell is measured first; then what is open is settled together, and each test has its final outcome."""
    done = suite({ONE: ["open", "regressed"], OTHER: ["ok"], THIRD: ["open", "ok"]}, "--perf-report=r.jsonl")

    assert suite.log() == [f"check {ONE}", f"check {OTHER}", f"check {THIRD}", f"settle {ONE} {THIRD}"]
    done.assert_outcomes(passed=2, failed=1)
    done.stdout.fnmatch_lines(["*this is regressed*"])
    assert done.stdout.str().count("this is open") <= 2  # said as it comes, and never as the verdict
    assert results(Path("r.jsonl")) == {ONE: "regressed", OTHER: "ok", THIRD: "ok"}


def test_what_stays_open_fails_no_test(suite):
    """Unless that is asked for."""
    assert suite({ONE: ["open", "open"]}).ret == 0
    suite({ONE: ["open", "open"]}, "-o", "perf_open=fail").assert_outcomes(failed=1)


def test_a_red_cell_that_the_question_acquits_passes(suite):
    """Its provisional failure was its verdict's alone."""
    suite({ONE: ["regressed", "ok"]}).assert_outcomes(passed=1)


def test_an_error_of_the_test_itself_stays(suite):
    """A good verdict hides no assertion of the user's."""
    suite({ONE: ["open", "ok"]}, body=f"{CHECK}; assert not 'mine'").assert_outcomes(failed=1)


def test_no_answer_fails(suite):
    """A question that could not be asked is red."""
    suite({ONE: ["open", "incomparable"]}).assert_outcomes(failed=1)


def test_x_settles_a_red_cell_at_once(suite):
    """And stops the run if it stays red; a cell that is open alone waits."""
    done = suite({ONE: ["open", "ok"], OTHER: ["regressed", "regressed"], THIRD: ["ok"]}, "-x")

    assert suite.log() == [f"check {ONE}", f"check {OTHER}", f"settle {ONE} {OTHER}"]
    done.assert_outcomes(passed=1, failed=1)


def test_x_goes_on_after_a_cell_that_was_acquitted(suite):
    """Its test has passed."""
    done = suite({ONE: ["regressed", "ok"], OTHER: ["ok"]}, "-x")

    assert suite.log() == [f"check {ONE}", f"settle {ONE}", f"check {OTHER}"]
    done.assert_outcomes(passed=2)


def test_x_stops_if_the_question_makes_a_cell_red(suite):
    """After the last test; every cell of the question is told."""
    done = suite({ONE: ["open", "regressed"], OTHER: ["open", "ok"]}, "-x")

    done.assert_outcomes(passed=1, failed=1)
    assert done.ret == pytest.ExitCode.TESTS_FAILED


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_worker_of_xdist_settles_its_cells(suite, workers):
    """The controller counts the final outcomes."""
    cells = {ONE: ["open", "regressed"], OTHER: ["open", "ok"], THIRD: ["ok"]}
    done = suite(cells, "-n", workers, "--perf-report=r.jsonl", apart=True)

    done.assert_outcomes(passed=2, failed=1)
    assert results(Path("r.jsonl")) == {ONE: "regressed", OTHER: "ok", THIRD: "ok"}


def test_lf_runs_what_was_red_in_the_end(suite):
    """Not what was only open for a while."""
    suite({ONE: ["open", "ok"], OTHER: ["open", "regressed"]}).assert_outcomes(passed=1, failed=1)
    done = suite({ONE: ["open", "ok"], OTHER: ["open", "ok"]}, "--lf")

    assert suite.log() == [f"check {OTHER}", f"settle {OTHER}"]
    done.assert_outcomes(passed=1)


def test_a_second_test_of_a_cell_waits_for_the_first_one_s_answer(suite):
    """Two tests never have one result."""
    body = f"{CHECK}\n\n@pytest.mark.perf_cell({ONE!r})\ndef test_again(perf_cell):\n    {CHECK}"
    done = suite({ONE: ["open", "regressed"]}, body=body)

    assert suite.log() == [f"check {ONE}", f"settle {ONE}"] * 2
    done.assert_outcomes(failed=2)


MINE = """
import settled_cells

@pytest.fixture(autouse=True)
def mine():
    yield
    settled_cells.told("torn down")
"""


def test_fixtures_are_torn_down_before_the_question(suite):
    """A user's database or service is not held while pairs run."""
    done = suite({ONE: ["open", "ok"], OTHER: ["ok"]}, file=TEST + MINE)

    assert suite.log() == [f"check {ONE}", "torn down", f"check {OTHER}", "torn down", f"settle {ONE}"]
    done.assert_outcomes(passed=2)


def test_a_second_check_hides_nothing(suite):
    """It gives the first one's answer: red stays red, and the cell is measured once."""
    body = f"\n    for _ in range(2):\n        try:\n            {CHECK}\n        except Exception:\n            pass"
    done = suite({ONE: ["regressed"]}, body=body)

    assert suite.log() == [f"check {ONE}"]
    done.assert_outcomes(failed=1)


@pytest.mark.parametrize(
    "body",
    [
        f"try:\n        {CHECK}\n    except Exception:\n        pass",
        f"try:\n        {CHECK}\n    except Exception:\n        pytest.skip('flaky')",
        f"try:\n        {CHECK}\n    except Exception:\n        pytest.xfail('known')",
        f"try:\n        {CHECK}\n    finally:\n        return",
        f"with pytest.raises(Exception):\n        {CHECK}",
    ],
)
@pytest.mark.parametrize("statuses", [["regressed"], ["regressed", "regressed"], ["open", "regressed"]])
def test_nothing_hides_a_red_verdict(suite, body, statuses):
    """Neither except nor skip nor xfail, of a verdict at once or of one that the question gives."""
    hides = "raises" in body and statuses[0] == "open"  # nothing was raised, which is that test's own error
    done = suite({ONE: statuses}, body=body)

    done.assert_outcomes(failed=1)
    assert hides or "this is regressed" in done.stdout.str()
    assert done.ret == pytest.ExitCode.TESTS_FAILED


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("statuses", [["regressed"], ["open", "regressed"]])
def test_a_mark_xfail_hides_no_red_verdict(suite, statuses, strict):
    """Quarantine is the way to live with a red cell for a while."""
    file = TEST.replace("@pytest.mark.perf_cell", f"@pytest.mark.xfail(strict={strict})\n@pytest.mark.perf_cell")
    done = suite({ONE: statuses}, file=file)

    done.assert_outcomes(failed=1)


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "workers"])
@pytest.mark.parametrize("statuses", [["regressed"], ["open", "regressed"]])
@pytest.mark.parametrize("hides", ["fixture", "subtest"])
def test_no_fixture_hides_a_red_verdict(suite, hides, statuses, workers):
    """Neither one that swallows what check() raises, nor pytest's own subtests."""
    if hides == "fixture":
        fixture = "@pytest.fixture\ndef quiet(perf_cell):\n    try:\n        perf_cell.check()\n"
        fixture += "    except Exception:\n        pass\n\n"
        file, body = (
            TEST.replace("(perf_cell)", "(perf_cell, quiet)").replace("@pytest.mark", f"{fixture}@pytest.mark"),
            "pass",
        )
    else:
        file, body = TEST.replace("(perf_cell)", "(perf_cell, subtests)"), "with subtests.test(): perf_cell.check()"
    cells = {ONE: statuses, OTHER: ["open", "ok"], THIRD: ["ok"]}
    done = suite(cells, "--perf-report=r.jsonl", *workers, file=file, body=body, apart=bool(workers))

    assert done.ret == pytest.ExitCode.TESTS_FAILED
    assert results(Path("r.jsonl")) == {ONE: "regressed", OTHER: "ok", THIRD: "ok"}


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "workers"])
@pytest.mark.parametrize("how", ["pytest.exit('enough', returncode=0)", "raise KeyboardInterrupt"])
def test_a_test_that_ends_the_run_hides_no_red_verdict(suite, how, workers):
    """pytest makes no report of such a test."""
    body = f"try:\n        perf_cell.check()\n    except Exception:\n        {how}"
    done = suite({ONE: ["ok"], OTHER: ["regressed"]}, "--perf-report=r.jsonl", *workers, body=body, apart=True)

    assert done.ret != 0
    assert results(Path("r.jsonl")) == {ONE: "ok", OTHER: "regressed"}


HOOKS = {
    "a wrapper": "wrapper=True, tryfirst=True)\ndef pytest_sessionfinish(session):\n    yield",
    "the last": "trylast=True)\ndef pytest_sessionfinish(session):",
}


@pytest.mark.parametrize("hook", HOOKS.values(), ids=HOOKS)
def test_a_hook_that_sets_the_exit_status_hides_no_red_verdict(suite, hook):
    """Whenever it runs."""
    suite.more = f"import pytest\n@pytest.hookimpl({hook}\n    session.exitstatus = 0\n"

    assert suite({ONE: ["regressed"]}, apart=True).ret == pytest.ExitCode.TESTS_FAILED
    assert suite({ONE: ["ok"]}, apart=True).ret == 0


PROTOCOL = """
import pytest
from _pytest.runner import runtestprotocol

class Again:
    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item, nextitem):
        for again in range(2):
            reports = runtestprotocol(item, nextitem=nextitem, log=False)
            if all(report.passed for report in reports):
                break
        for report in reports:
            item.ihook.pytest_runtest_logreport(report=report)
        return True

def {hook}(config):
    config.pluginmanager.register(Again())
"""


@pytest.mark.parametrize("hook", ["pytest_configure", "pytest_report_header"], ids=["before ours", "after ours"])
@pytest.mark.parametrize(("statuses", "red"), [(["regressed"], True), (["ok"], False), (["open", "ok"], None)])
def test_a_plugin_that_runs_tests_again_hides_no_red_verdict(suite, hook, statuses, red):
    """As pytest-rerunfailures does. If its hook comes before ours, no question can settle an open cell."""
    suite.more = PROTOCOL.format(hook=hook)
    done = suite({ONE: statuses, OTHER: ["ok"]}, apart=True)
    taken = red is None and "another plugin ran its test" in done.stdout.str()

    assert done.ret == int(taken if red is None else red)
    assert taken == (red is None and hook == "pytest_report_header")


def test_the_question_has_a_limit(suite):
    """As long as the measuring took, at least a minute; or the rest of --perf-budget."""
    suite({ONE: ["open", "ok"]})
    assert "within 60 s" in suite.raw()
    suite({ONE: ["open", "ok"]}, "--perf-budget=5min")
    seconds = int(suite.raw().rpartition("within ")[2].split()[0])
    assert 60 < seconds <= 300


def test_ctrl_c_keeps_what_is_known(suite):
    """Settled cells have their final verdicts, the others what they had, in the summary and in the report."""
    cells = {ONE: ["open", "regressed"], OTHER: ["open", "interrupted"], THIRD: ["open", "ok"]}
    done = suite(cells, "--perf-report=r.jsonl", apart=True)

    assert done.ret == pytest.ExitCode.INTERRUPTED
    assert results(Path("r.jsonl")) == {ONE: "regressed", OTHER: "open", THIRD: "open"}
    done.stdout.fnmatch_lines(["*this is regressed*"])


def test_a_killed_run_keeps_the_exact_verdicts(suite):
    """While a cell waits for the question, the report's lines have what is known of it."""
    cells = {ONE: ["open", "hangs"], OTHER: ["ok"]}
    suite(cells, "--collect-only")
    with subprocess.Popen(
        [sys.executable, "-m", "pytest", "--perf", "--perf-report=r.jsonl", "-p", "no:cacheprovider"],
        stdout=subprocess.DEVNULL,
    ) as run:
        end = time.monotonic() + 60
        while "hangs" not in suite.raw() and time.monotonic() < end:
            time.sleep(0.1)
        run.send_signal(signal.SIGKILL)

    assert results(Path("r.jsonl")) == {ONE: "open", OTHER: "ok"}
