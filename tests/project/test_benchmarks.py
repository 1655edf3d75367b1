"""The commands of benchmarks/ and the live line: what they print is what was measured."""

import importlib.util
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perfsuite.features.ladder.asv_results import Benchmark, Run, Value
from perfsuite.features.ladder.ladder import Rung
from perfsuite.features.predict.prediction import Prediction
from perfsuite.features.predict.trace_records import Trace
from perfsuite.records.formats import FORMAT

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
CELL = "gpt2_tiny-single-cpu_x1"


def _run(script, *options):
    command = [sys.executable, str(BENCHMARKS / script), *options]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


def _seconds(text):
    number, unit = re.fullmatch(r"(-?[\d.]+) (m?s)", text.strip()).groups()
    return float(number) * {"s": 1, "ms": 1e-3}[unit]


@pytest.mark.slow
def test_cell_overhead_adds_up():
    """Whole time is the steps and what is beyond them, cold and warm; the engine is part of that."""
    output = _run("cell_overhead.py", CELL, "--repeat=1")
    rows = [[_seconds(cell) for cell in line.split("│")[2:6]] for line in output.splitlines() if line.startswith("│")]
    ratio = float(re.findall(r"warm / cold: ([\d.]+)", output)[0])

    for whole, steps, beyond, _ in rows:  # each number is printed with three digits
        assert whole == pytest.approx(steps + beyond, abs=0.01 * max(1, whole))
    assert ratio == pytest.approx(rows[1][2] / rows[0][2], abs=0.02)
    assert all(number > 0 for row in rows for number in row)


@pytest.mark.slow
def test_a_script_trains_alike_with_and_without():
    """Each loss has the same bits, and both sides of a pair are timed."""
    output = _run("script_overhead.py", "--pairs=1", "--steps=3")

    assert "losses that differ: 0" in output
    assert re.search(r"pair 1: step [\d.]+ ms, with perfsuite [\d.]+ ms .* 15 losses compared", output)


@pytest.mark.parametrize(
    ("seconds", "rss", "status", "told"),
    [(5.9, 2**29, 0, "5.9 s | 6 s: met"), (6.1, 2**29, 1, "6 s: MISSED"), (1.0, 2**30, 1, "1024 MiB: MISSED")],
)
def test_a_missed_goal_of_speed_is_red(monkeypatch, tmp_path, seconds, rss, status, told):
    """A trace that takes longer than its goal, or a GiB of memory, ends the benchmark with 1, and the table says so."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import memory_speed

    monkeypatch.setenv("PYTHONHASHSEED", "0")  # which the benchmark changes, and this gives back
    one = Trace(events=[], labels=[], marks=[], versions={}, seconds=seconds, rss_bytes=rss)
    monkeypatch.setattr(memory_speed, "FOLDER", tmp_path)
    monkeypatch.setattr(memory_speed, "GOALS", {"gpt2_tiny-zero3+bf16-h100_x8": 6})
    monkeypatch.setattr(memory_speed, "trace", lambda jobs: [one] * len(jobs))

    assert memory_speed.main() == status
    written = (tmp_path / "memory" / "speed.csv").read_text()

    assert told.replace(" | ", ",") in written and " s of 2," in written


def test_each_softmax_has_its_own_mean(monkeypatch, tmp_path):
    """The mean error with the softmax of that year is next to that with today's."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import memory_published

    def say(cells, *_, **__):
        published = {one.cell.replace(memory_published.SOFTMAX, ""): one.published for one in memory_published.FIGURES}
        context = memory_published.CONTEXT_2022
        for cell in cells:
            figure = published[cell.id.replace(memory_published.SOFTMAX, "")]
            size = figure if memory_published.SOFTMAX in cell.id else 0.9 * figure
            numbers: dict[str, Any] = {"reserved_bytes": round(size) - context, "allocated_bytes": round(size)}
            yield Prediction(format=FORMAT, cell=cell.id, outcome="fits", world_size=1, **numbers)

    monkeypatch.setenv("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # which DeepSpeed sets, and this gives back
    monkeypatch.setattr(memory_published, "FOLDER", tmp_path)
    monkeypatch.setattr(memory_published, "predict", say)
    memory_published.main()
    written = (tmp_path / "memory" / "published_errors.csv").read_text().splitlines()

    assert "bert,0.0 %,0.0 %" in written
    assert "bert with today's softmax,10.0 %,10.0 %" in written


def test_plugin_overhead_adds_up():
    """The printed difference and ratio are those of the printed times."""
    output = _run("plugin_overhead.py", "--repeat=1")
    whole, without, added = (_seconds(line[20:]) for line in output.splitlines()[:3])
    ratio = float(output.split()[-1])

    assert added == pytest.approx(whole - without, abs=0.016)  # each is printed with two digits
    assert ratio == pytest.approx(whole / without, abs=0.02)


def test_live_line_on_a_terminal(tmp_path):
    """On a terminal a line moves while the cell trains, and it is gone when the cell is done."""
    (tmp_path / "test_perf.py").write_text(
        f"import pytest\n@pytest.mark.perf_cell({CELL!r})\ndef test_cell(perf_cell): perf_cell.check()\n"
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--perf",
        "--perf-steps=200",
        "-o",
        "perf_launches=1",
        "--perf-update=new",
    ]
    environment = {**os.environ, "TERM": "xterm"}
    environment.pop("CI", None)
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        os.execve(command[0], command, environment)
    output = b""
    while True:
        try:
            data = os.read(terminal, 65536)
        except OSError:  # the terminal closes when pytest ends
            break
        if not data:
            break
        output += data
    _, status = os.waitpid(pid, 0)
    shown = re.findall(rb" " + re.escape(CELL.encode()) + rb"  step (\d+)/260  \d+\.\d s", output)

    assert os.waitstatus_to_exitcode(status) == 0
    assert len(shown) >= 2
    assert [int(step) for step in shown] == sorted(int(step) for step in shown)
    assert b"\b" in output.rpartition(b"/209")[2]


def _false_alarms(numbers, folder, monkeypatch):
    """benchmarks/false_alarms.py with rungs whose runs gave these times: what it judges, and how its command ends."""
    found = importlib.util.spec_from_file_location("false_alarms", BENCHMARKS / "false_alarms.py")
    assert found
    script = importlib.util.module_from_spec(found)
    found.loader.exec_module(script)
    names = [str(number) for number in range(len(numbers))]
    built = SimpleNamespace(rungs=[Rung(name=name, date="", releases=()) for name in names])
    runs = {
        name: Run(rung=name, date="", seconds=1.0, values={"b": {"": Value(value=number)}})
        for name, number in zip(names, numbers, strict=True)
    }
    known = {"b": Benchmark("", "b", True)}
    monkeypatch.setattr(script, "build", lambda *_: built)
    monkeypatch.setattr(script.results, "last_run", lambda *_: True)
    monkeypatch.setattr(script.story, "last_runs", lambda *_: runs)
    monkeypatch.setattr(script.results, "benchmarks", lambda *_: known)
    monkeypatch.setattr(sys, "argv", ["false_alarms.py", f"--folder={folder}"])
    return [(step.new_rung, step.kind) for step in script.judge(built, runs, known)], script.main()


def test_an_alarm_over_an_older_rung_is_one(tmp_path, monkeypatch):
    """The one that only the rung above raises, too: it is reported like the others."""
    alarms, _ = _false_alarms([1.15, 1.0, 1.01, 1.3, 1.0], tmp_path, monkeypatch)

    assert {("3", "regressed"), ("4", "improved")} <= set(alarms)


@pytest.mark.parametrize(
    ("numbers", "alarms", "status"),
    [([1.0] * 5, 0, 0), ([1.0, 1.0, 2.0, 2.0], 1, 0), ([1.0, 1.0, 2.0, 2.0, 4.0, 4.0], 2, 1)],
)
def test_more_than_one_false_alarm_is_red(numbers, alarms, status, tmp_path, monkeypatch):
    """By the exit code."""
    found, ended = _false_alarms(numbers, tmp_path, monkeypatch)

    assert (len(found), ended) == (alarms, status)
