"""A baseline that no test compares: a run of all tests names it. Results are made up: nothing is trained."""

from pathlib import Path

import pytest
from gate_samples import baseline, measurement

from perfsuite.plugin.perf_run import PerfRun
from perfsuite.records import codec
from perfsuite.records.result import Result

CELLS = ["gpt2_tiny-ddp-cpu_x2", "gpt2_tiny-zero1-cpu_x2"]
GONE = ["gpt2_tiny-ddp+bf16-cpu_x2", "gpt2_tiny-zero4-cpu_x2", "my_model-ddp-cpu_x2"]
ELSEWHERE = ["gpt2_tiny-ddp-cpu_x4096", "gpt2_tiny-ddp-t4_x2"]
TEST = f"""
import pytest

@pytest.mark.perf_cell({", ".join(map(repr, CELLS))})
def test_cell(perf_cell):
    perf_cell.check()
"""
TOLD = "3 baselines have no test here, so nothing is compared with them: "
MADE_UP = f"""
import sys
sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parents[1] / "support")]!r}
from perfsuite.plugin.perf_run import PerfRun
from test_untested import measure

PerfRun.measure = measure
"""


def measure(self, cell, request):
    """Green."""
    from test_run_output import made_up

    known = [metric for metric in self.output.metrics if metric.name in measurement().readings]
    result: Result = made_up(cell.id, known)
    return result


@pytest.fixture
def project(pytester, monkeypatch):
    """Tests of two cells; baselines of these, of three that no test has any more, and of hardware elsewhere."""
    monkeypatch.setattr(PerfRun, "measure", measure)
    pytester.makepyfile(test_perf=TEST)
    for cell in [*CELLS, *GONE, *ELSEWHERE]:
        file = pytester.path / "baselines" / cell.rpartition("-")[2] / f"{cell}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        codec.write(file, baseline())
    return pytester


def printed(project, *options):
    """A run's text on one line; the run is green."""
    result = project.runpytest_inprocess("--perf", "-p", "no:cacheprovider", *options)
    result.assert_outcomes(passed=len(CELLS))
    return " ".join(result.stdout.str().split())


def test_a_run_of_all_tests_names_the_baselines_without_one(project):
    """A test that is gone, an engine that is gone and a model that is gone, not what is for other hardware."""
    text = printed(project)

    assert f"{TOLD}{', '.join(GONE)}. " in text
    assert "perfsuite baseline prune --tests . ================" in text


def test_the_command_names_the_tests_of_the_run(project):
    """Those that the project gives: prune collects the same."""
    project.makeini("[pytest]\nperf_testpaths = test_perf.py")

    assert "perfsuite baseline prune --tests test_perf.py ====" in printed(project)


@pytest.mark.slow
def test_workers_tell_it_once(project):
    """They get the paths as if they had been asked for."""
    project.makeconftest(MADE_UP)

    assert printed(project, "-n2").count(TOLD) == 1
    assert TOLD not in printed(project, "-n2", "test_perf.py")


@pytest.mark.parametrize(
    "options", [["test_perf.py"], ["-k", "gpt2"], ["--perf-hardware=cpu_x2"], ["--ignore=elsewhere"], ["--lf"]]
)
def test_a_run_of_some_tests_tells_nothing(project, options):
    """The others may have the cell."""
    result = project.runpytest_inprocess("--perf", *options)

    assert "no test here" not in result.stdout.str()


def test_nothing_is_told_where_every_baseline_has_its_test(project):
    """One of other hardware has none here."""
    for cell in GONE:
        (project.path / "baselines" / "cpu_x2" / f"{cell}.json").unlink()

    assert "no test here" not in printed(project)


def test_a_run_warns_of_a_materiality_that_hides_nearly_everything(project):
    """It is valid, and nobody else would see it."""
    project.makepyprojecttoml('[tool.perfsuite.materiality]\n"*" = 0.99\n')

    assert 'materiality."*" is 0.99: what gets worse by less than 99 % fails no run.' in printed(project)
