"""On macOS and Windows: what needs Linux says so in one sentence, and the rest works as on Linux."""

import json
import subprocess
import sys

import pytest

SYSTEMS = {"darwin": "macOS", "win32": "Windows"}
LACKING = ("sched_getaffinity", "sched_setaffinity", "fork", "getuid", "sysconf")  # what os has not, on one or both
ELSEWHERE = """
import os
import sys
import asyncio, ctypes.util, filelock, rich.console, rich.table, urllib.request  # they ask for the system on import

sys.platform = {system!r}
for name in {lacking}:
    delattr(os, name)
for name in ("fcntl", "resource"):
    sys.modules[name] = None  # an import of it fails
"""
TEST = """
import pytest

@pytest.mark.perf_cell("gpt2_tiny-single-cpu_x1", models=["gpt2_tiny"], strategies=["ddp"], hardware=["cpu_x2", "gpus"])
def test_cell(perf_cell):
    perf_cell.check()

def test_other():
    pass
"""
every_system = pytest.mark.parametrize("system", SYSTEMS)


@pytest.fixture
def elsewhere(pytester, system):
    """A folder whose pytest believes that it is on another system."""
    pytester.makeconftest(ELSEWHERE.format(system=system, lacking=LACKING))
    pytester.makepyfile(test_perf=TEST)
    return pytester


@every_system
def test_perf_says_what_it_needs(elsewhere, system):
    """One sentence, no traceback, and pytest's exit code for a usage error."""
    result = elsewhere.runpytest_subprocess("--perf")
    said = [line for line in result.stderr.lines if line]

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert len(said) == 1
    assert said[0].startswith(f"ERROR: --perf needs Linux, but this is {SYSTEMS[system]}: run it in ")
    assert ("WSL 2" in said[0]) == (system == "win32")


@every_system
def test_plain_pytest_works(elsewhere, system):
    """Cells are collected and skipped, other tests run."""
    elsewhere.runpytest_subprocess().assert_outcomes(passed=1, skipped=2)


def run(system, *commands):
    """Exit code, stdout and stderr of every command on another system, in one process."""
    code = ELSEWHERE.format(system=system, lacking=LACKING) + (
        "import contextlib, io, json\n"
        f"from perfsuite.cli.main import main\nfor arguments in {commands!r}:\n"
        "    out, err = io.StringIO(), io.StringIO()\n"
        "    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):\n"
        "        status = main(arguments)\n"
        "    print(json.dumps([status, out.getvalue(), err.getvalue()]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@every_system
def test_commands_that_start_processes_say_what_they_need(system):
    """Whatever they are asked for."""
    commands = (
        ["memory", "t5_tiny", "--strategy", "single"],
        ["fit", "t5_tiny", "--hardware", "t4_x1"],
        ["ab", "--a", "zero2", "--b", "zero3", "--model", "gpt2_tiny", "--hardware", "cpu_x2"],
        ["study", "scaling"],
        ["selftest"],
        ["ladder", "run"],
    )

    for (name, *_), (status, out, err) in zip(commands, run(system, *commands), strict=True):
        assert (status, out, err.count("\n")) == (2, "", 1)
        assert err.startswith(f"perfsuite: perfsuite {name} needs Linux, but this is {SYSTEMS[system]}: ")


@every_system
def test_commands_that_only_read_work(system):
    """Lists and the state of baselines."""
    (listed, studies, _), (shown, baselines, _) = run(
        system, ["list", "studies"], ["baseline", "show", "-k", "t5_tiny"]
    )

    assert (listed, shown) == (0, 0)
    assert "scaling" in studies and "t5_tiny-zero3-cpu_x2" in baselines
