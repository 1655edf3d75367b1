"""Real regressions are defined whole, replayed once, and called caught only by the metric that has to move."""

import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from replays import CELL, NORM, ONE, STORY, WORSE, seen

from perfsuite.catalog.cell import parse_cell
from perfsuite.catalog.registry import Catalog
from perfsuite.catalog.scripts import scripts
from perfsuite.cli.main import main
from perfsuite.environments.requirements import pinned
from perfsuite.errors import UnknownName, UsageError
from perfsuite.features.prove.replay import regression, trial_of_releases
from perfsuite.features.prove.replay.regression import (
    Needs,
    Regression,
    RegressionKind,
    all_regressions,
    chosen_regressions,
)
from perfsuite.features.prove.replay.replay_outcome import outcome_of
from perfsuite.features.prove.replay.replay_page import sections
from perfsuite.records.verdict import Line, Status
from perfsuite.run import releases_compared as comparing
from perfsuite.run.releases_compared import SETTINGS, compare_releases, load, save, sentence
from perfsuite.system.units import WHOLE

ROOT = Path(__file__).parents[3]
EVERY = all_regressions()
every_regression = pytest.mark.parametrize("one", EVERY.values(), ids=EVERY)
CALLS = Line(metric="python_calls", title="Python calls/step", unit=WHOLE, old=10, new=12, **WORSE)


@pytest.fixture(scope="module")
def with_scripts():
    """The catalog with the scripts of the collection."""
    return Catalog(extra_models=scripts(regression.commands(), ROOT))


@every_regression
def test_a_table_is_the_whole_story(one, with_scripts):
    """Its releases are exact, its workload and metric are the catalog's, or it says why it has none."""
    catalog = with_scripts
    assert one.saw and one.link
    assert bool(one.why_not) != bool(one.workload)
    assert one.needs == Needs.CPU or not one.trials
    for trial in one.trials:
        assert all(pinned(text) for side in trial.pair for text in side.split())
        cell = parse_cell(one.cell, catalog)
        metrics = {metric.name for metric in catalog.metrics(cell.strategy.engine.process)}
        assert cell.id == one.cell
        assert one.metric in {*metrics, ""}
    for word in one.command.split():
        assert not word.endswith(".py") or (ROOT / word).is_file()


def test_every_script_is_of_a_regression():
    """None is left over."""
    used = {Path(word).name for one in EVERY.values() for word in one.command.split() if word.endswith(".py")}

    assert used == {path.name for path in (ROOT / "benchmarks" / "regressions").glob("*.py")}


def test_names_and_kinds_choose():
    """``perfsuite replay NAME`` finds it, and an unknown name teaches."""
    assert [one.name for one in chosen_regressions([], None)] == list(EVERY)
    assert {one.kind for one in chosen_regressions([], RegressionKind.MEMORY)} == {RegressionKind.MEMORY}
    with pytest.raises(UnknownName, match=r"Did you mean 'deepspeed_7718'"):
        chosen_regressions(["deepspeed_771"], None)


@pytest.mark.parametrize(
    ("records", "state"),
    [
        ([], "waiting"),
        ([seen("lib==1", "lib==2", NORM)], "waiting"),
        ([seen("lib==2", "lib==3", NORM, CALLS)], "caught"),
        ([seen("lib==2", "lib==3", CALLS)], "missed"),
        ([seen("lib==2", "lib==3")], "missed"),
        ([seen("lib==2", "lib==3", outcomes=("fits", "failed"), reasons=("", "It died."))], "failed"),
        ([seen("lib==2", "lib==3", outcomes=("unsupported", "fits"))], "failed"),
    ],
)
def test_only_the_named_metric_catches(records, state):
    """Another metric's red is no catch."""
    assert outcome_of(ONE, records).state == state


@pytest.mark.parametrize("status", [Status.IMPROVED, Status.IMMATERIAL])
def test_only_what_is_worse_catches(status):
    """The metric moved, but the wrong way or too little."""
    assert outcome_of(ONE, [seen("lib==2", "lib==3", msgspec.structs.replace(NORM, status=status))]).state == "missed"


@pytest.mark.parametrize(
    ("outcomes", "state"),
    [(("fits", "failed"), "caught"), (("fits", "fits"), "missed"), (("failed", "failed"), "failed")],
)
def test_a_workload_that_ends_is_caught_by_its_end(outcomes, state):
    """Where no metric is named, the bad release must end the workload, and the good one must not."""
    one = Regression(**STORY | {"metric": ""})

    assert outcome_of(one, [seen("lib==2", "lib==3", outcomes=outcomes)]).state == state


@pytest.mark.parametrize(
    ("record", "by_losses"),
    [
        (seen("lib==2", "lib==3", NORM), False),
        (seen("lib==2", "lib==3", NORM, msgspec.structs.replace(NORM, metric="loss")), True),
        (seen("lib==2", "lib==3", outcomes=("fits", "failed")), True),
    ],
)
def test_losses_alone_catch_less(record, by_losses):
    """What a plain comparison of losses sees: another loss, or an end."""
    one = Regression(**STORY | {"metric": "" if record.outcomes[1] == "failed" else "gradient_norm"})

    assert outcome_of(one, [record]).by_losses == by_losses


def test_a_command_is_a_script_of_its_own():
    """A workload with a space is a command: its cell has the name of the regression."""
    one = Regression(**STORY | {"workload": "torchrun --nproc-per-node 2 train.py", "ranks": 2, "long": 100})

    assert one.cell == "one-script-cpu_x2"
    assert [(trial.pair, trial.long) for trial in one.trials] == [(("lib==2", "lib==3"), 100)]


def test_the_page_says_what_and_how():
    """Recall by kind, what is not run apart, the metric with both numbers, and the command."""
    gpu = Regression(**STORY | {"name": "gpu", "kind": "memory", "workload": "", "why_not": "x", "needs": "GPU"})
    text = "\n".join(sections({"one": ONE, "gpu": gpu}, [seen("lib==2", "lib==3", NORM, CALLS)]))

    assert "1 of 1 that ran are caught; 1 do not run here." in text
    assert "| numbers | 1 | 0 | 1 | 1 | 100 % | 0 | 0, 0 |" in text
    assert "| memory | 1 | 0 | 0 | 0 | – | 0 | 1, 0 |" in text
    row = "| [one](#one) | numbers | lib==2 → lib==3 | ✓ | gradient norm 3.58 → 1.97 (-45.0 %) | 7 |"
    assert row in text
    assert "Also worse: Python calls/step." in text
    assert "perfsuite replay --fresh one" in text


def test_results_are_kept_line_by_line(tmp_path):
    """What is written is what is read."""
    records = [seen("lib==2", "lib==3", NORM), seen("lib==1", "lib==2")]
    save(tmp_path / "x.jsonl", records)

    assert load(tmp_path / "x.jsonl") == records
    assert len((tmp_path / "x.jsonl").read_text().splitlines()) == 2
    assert load(tmp_path / "none.jsonl") == []


def collect_three(put, ran):
    """A collection of three, whose trials are only noted in ``ran``, in order. ``put`` is a setattr."""

    def compare(pair, cells, catalog, watch, kept, settings):
        assert settings == dataclasses.replace(SETTINGS, start_timeout=2250.0, step_timeout=900.0)
        ran.append(pair[1])
        return [seen(*pair, NORM) for _ in cells]

    collection = {name: Regression(**STORY | {"name": name, "bad": f"lib=={name}"}) for name in ("x", "y", "z")}
    put(regression, "all_regressions", lambda: collection)
    put(trial_of_releases, "compare_releases", compare)


@pytest.fixture
def three(monkeypatch):
    """Those of three trials that ran."""
    ran: list[str] = []
    collect_three(monkeypatch.setattr, ran)
    return ran


def replay(file, *words):
    """The exit code of ``perfsuite replay``."""
    return main(["replay", "--file", str(file), "--timeout=900", *words])


def test_a_run_resumes(tmp_path, three, capsys):
    """A second run measures nothing, --fresh everything, and a name only its own."""
    codes = [replay(tmp_path / "x.jsonl", *words) for words in (["y"], [], [], ["--fresh", "z"])]

    assert codes == [0] * 4
    assert three == ["lib==y", "lib==x", "lib==z", "lib==z"]
    assert "3 of 3 that ran are caught." in capsys.readouterr().out


def killed_replay(file):
    """A replay of the three in this process, which is killed during the third trial."""
    collect_three(setattr, [])
    compare = vars(trial_of_releases)["compare_releases"]

    def killed(pair, *others):
        if pair[1] == "lib==z":
            os.kill(os.getpid(), signal.SIGKILL)
        return compare(pair, *others)

    vars(trial_of_releases)["compare_releases"] = killed
    replay(file)


def test_a_kill_loses_nothing(tmp_path, three):
    """A process that is killed during its third trial has kept two; the next one runs the third alone. It is no fork:
    a worker of pytest-xdist has threads, whose locks a fork may hold for ever.
    """
    file = tmp_path / "x.jsonl"
    text = f"import sys; sys.path[:] = {sys.path}; import {__name__}; {__name__}.killed_replay({str(file)!r})"
    child = subprocess.run([sys.executable, "-c", text], timeout=120)

    assert child.returncode == -signal.SIGKILL
    assert [one.b for one in load(file)] == ["lib==x", "lib==y"]
    assert replay(file) == 0 and three == ["lib==z"]


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_shards_merge_to_the_same_page(tmp_path, three, count):
    """Each trial runs in one shard, and the lines of all files are the file of one run."""
    whole, merged = tmp_path / "whole.jsonl", tmp_path / "merged.jsonl"
    assert replay(whole) == 0
    three.clear()
    files = [tmp_path / f"{number}.jsonl" for number in range(1, count + 1)]
    for number, file in enumerate(files, 1):
        replay(file, f"--shard={number}/{count}")
    merged.write_text("".join(file.read_text() for file in reversed(files) if file.exists()))

    assert sorted(three) == ["lib==x", "lib==y", "lib==z"]
    collection = regression.all_regressions()
    assert sections(collection, load(merged)) == sections(collection, load(whole))


def test_a_miss_is_an_error(tmp_path, three):
    """Exit code 1."""
    save(tmp_path / "replay.jsonl", [seen("lib==2", "lib==x")])

    assert replay(tmp_path / "replay.jsonl", "--list") == 1


def test_an_environment_that_cannot_be_built_has_its_reason(catalog, monkeypatch):
    """uv's sentence is the result, and no rank starts."""

    def sides(*_):
        raise UsageError("uv pip install … failed: No solution found: lib==3")

    monkeypatch.setattr(comparing, "sides", sides)
    (found,) = compare_releases(("lib==2", "lib==3"), [CELL], catalog, lambda *_: None, {})

    assert found.outcomes == ("failed", "failed")
    assert found.reasons[0].startswith("uv pip install … failed: No solution found")


def test_a_long_failure_is_cut():
    """torch's compiler says what is wrong first, and then quotes the source."""
    text = sentence("Expected BF16\n  File /tmp/env/lib/moe.py, line 3\n" + "  quoted\n" * 200)

    assert text.startswith("Expected BF16 File …/moe.py, line 3 quoted")
    assert text.endswith(" …")
    assert len(text) <= 500


def test_a_release_is_measured_once(catalog, measure, monkeypatch):
    """A release that is in two comparisons of a cell is launched in the first alone."""
    cell = "gpt2_tiny-single+nodrop-cpu_x1"
    one = measure(cell)
    kept = {("here", cell): one}
    (found,) = compare_releases(("here", "here"), [cell], catalog, lambda *_: None, kept)

    assert (found.status, found.outcomes) == ("ok", ("fits", "fits"))
    assert kept["here", cell].readings.keys() == one.readings.keys()
