"""Real regressions are defined whole, replayed once, and called caught only by the metric that has to move."""

import dataclasses
from pathlib import Path

import msgspec
import pytest
from replays import CELL, NORM, ONE, STORY, WORSE, seen

from perfsuite.catalog.cell import parse_cell
from perfsuite.catalog.project import read_project
from perfsuite.catalog.registry import Catalog
from perfsuite.catalog.scripts import scripts
from perfsuite.cli.main import INTERRUPTED, main
from perfsuite.environments.requirements import pinned
from perfsuite.errors import UnknownName, UsageError
from perfsuite.features.prove.commands import replay as command
from perfsuite.features.prove.replay.regression import Regression, all_regressions, named
from perfsuite.features.prove.replay.replay_outcome import outcome_of
from perfsuite.features.prove.replay.replay_page import sections
from perfsuite.records.verdict import Line, Status
from perfsuite.run import releases_compared as comparing
from perfsuite.run.releases_compared import SETTINGS, compare_releases, load, save, sentence
from perfsuite.system.units import WHOLE

ROOT = Path(__file__).parents[3]
EVERY = all_regressions()
every_regression = pytest.mark.parametrize("regression", EVERY.values(), ids=EVERY)
CALLS = Line(metric="python_calls", title="Python calls/step", unit=WHOLE, old=10, new=12, **WORSE)


@pytest.fixture(scope="module")
def with_scripts():
    """The catalog from the root of the repository, with the scripts of its pyproject.toml."""
    return Catalog(extra_models=scripts(read_project(ROOT).scripts, ROOT))


@every_regression
def test_a_file_is_the_whole_story(regression, with_scripts):
    """Its name is the file's, its releases are exact, its cell and metric are the catalog's, or it says why not."""
    catalog = with_scripts
    assert regression.saw and regression.source
    assert bool(regression.why_not) != bool(regression.cell)
    for pair in regression.comparisons:
        assert all(pinned(text) for side in pair for text in side.split())
    if regression.cell:
        cell = parse_cell(regression.cell, catalog)
        metrics = {metric.name for metric in catalog.metrics(cell.strategy.engine.process)}
        assert cell.id == regression.cell
        assert regression.moves in {*metrics, ""}


def test_every_script_is_of_a_regression(with_scripts):
    """Each script that pyproject.toml names is there, and a regression runs it."""
    used = {one.cell.partition("-script-")[0] for one in EVERY.values() if "-script-" in one.cell}

    assert {model.name for model in with_scripts.extra_models} == used
    for model in with_scripts.extra_models:
        assert all((ROOT / word).is_file() for word in model.command if word.endswith(".py"))


def test_names_are_those_of_the_files():
    """``perfsuite replay NAME`` finds it, and an unknown name teaches."""
    assert [one.name for one in named([])] == list(EVERY)
    with pytest.raises(UnknownName, match=r"Did you mean 'deepspeed_7718'"):
        named(["deepspeed_771"])


@pytest.mark.parametrize(
    ("records", "state"),
    [
        ([], "waiting"),
        ([seen("lib==2", "lib==3", NORM)], "waiting"),
        ([seen("lib==2", "lib==3", NORM, CALLS), seen("lib==1", "lib==2")], "caught"),
        ([seen("lib==2", "lib==3", NORM), seen("lib==1", "lib==2", CALLS)], "caught"),
        ([seen("lib==2", "lib==3", CALLS), seen("lib==1", "lib==2")], "missed"),
        ([seen("lib==2", "lib==3"), seen("lib==1", "lib==2")], "missed"),
        ([seen("lib==2", "lib==3", NORM), seen("lib==1", "lib==2", NORM)], "false catch"),
        (
            [seen("lib==2", "lib==3", outcomes=("fits", "failed"), reasons=("", "It died.")), seen("lib==1", "lib==2")],
            "failed",
        ),
        (
            [seen("lib==2", "lib==3", NORM), seen("lib==1", "lib==2", outcomes=("unsupported", "fits"))],
            "failed",
        ),
    ],
)
def test_only_the_named_metric_catches(records, state):
    """Another metric's red is no catch, and a move between good neighbours is a false one."""
    assert outcome_of(ONE, records).state == state


@pytest.mark.parametrize(
    ("share", "neighbour", "state"),
    [(0.05, 0.0499, "caught"), (0.0499, 0.0, "missed"), (0.06, 0.05, "false catch"), (-0.05, 0.0, "caught")],
)
def test_a_small_move_does_not_count(share, neighbour, state):
    """Where a metric moves a little with every release, only a share counts."""
    pairs = {("lib==2", "lib==3"): share, ("lib==1", "lib==2"): neighbour}
    records = [
        seen(*pair, msgspec.structs.replace(CALLS, old=10_000, new=10_000 + round(10_000 * moved)))
        for pair, moved in pairs.items()
    ]

    assert outcome_of(Regression(**STORY | {"moves": "python_calls", "least": 0.05}), records).state == state


def test_an_improvement_is_no_catch():
    """The metric moved, but the wrong way."""
    better = msgspec.structs.replace(NORM, status=Status.IMPROVED)

    assert outcome_of(ONE, [seen("lib==2", "lib==3", better), seen("lib==1", "lib==2")]).state == "missed"


@pytest.mark.parametrize(("outcomes", "state"), [(("fits", "failed"), "caught"), (("fits", "fits"), "missed")])
def test_a_cell_that_ends_is_caught_by_its_end(outcomes, state):
    """Where no metric is named, the bad release must end the cell."""
    one = Regression(name="one", saw="x", source="y", good="lib==2", bad="lib==3", cell=CELL)

    assert outcome_of(one, [seen("lib==2", "lib==3", outcomes=outcomes)]).state == state


def test_the_page_says_what_and_how():
    """Symbol, metric with both numbers, what else moved between the neighbours, and the commands."""
    text = "\n".join(sections({"one": ONE}, [seen("lib==2", "lib==3", NORM, CALLS), seen("lib==1", "lib==2", CALLS)]))

    assert "1 caught." in text
    row = "| [one](#one) | lib==2 → lib==3 | ✓ | gradient norm 3.58 → 1.97 (-45.0 %) | quiet; also Python calls/step |"
    assert f"{row} 14 |" in text
    assert "Also worse: Python calls/step." in text
    assert f"perfsuite ab --a 'lib==2' --b 'lib==3' --pairs 0 {CELL}" in text


def test_results_are_kept_line_by_line(tmp_path):
    """What is written is what is read."""
    records = [seen("lib==2", "lib==3", NORM), seen("lib==1", "lib==2")]
    save(tmp_path / "x.jsonl", records)

    assert load(tmp_path / "x.jsonl") == records
    assert len((tmp_path / "x.jsonl").read_text().splitlines()) == 2
    assert load(tmp_path / "none.jsonl") == []


def test_a_run_resumes(tmp_path, monkeypatch, capsys):
    """A second run measures nothing, --fresh everything; a run that dies keeps what it has."""
    file, ran = tmp_path / "replay.jsonl", []

    def compare(pair, cell, catalog, watch, kept, settings):
        assert settings == dataclasses.replace(SETTINGS, start_timeout=2250.0, step_timeout=900.0)
        ran.append(pair)
        if len(ran) == 2:
            raise KeyboardInterrupt
        return seen(*pair, *[NORM] * (pair == ("lib==2", "lib==3")))

    monkeypatch.setattr(command, "named", lambda names: [ONE])
    monkeypatch.setattr(command, "compare_releases", compare)
    monkeypatch.setattr(command, "all_regressions", lambda: {"one": ONE})
    codes = [main(["replay", "--file", str(file), "--timeout=900", *more]) for more in ([], [], [], ["--fresh"])]
    bad, good = ONE.comparisons

    assert codes == [INTERRUPTED, 0, 0, 0]
    assert ran == [bad, good, good, bad, good]
    assert "1 caught." in capsys.readouterr().out


def test_a_miss_is_an_error(tmp_path, monkeypatch):
    """Exit code 1."""
    save(tmp_path / "replay.jsonl", [seen("lib==2", "lib==3"), seen("lib==1", "lib==2")])
    monkeypatch.setattr(command, "named", lambda names: [ONE])

    assert main(["replay", "--list", "--file", str(tmp_path / "replay.jsonl")]) == 1


def test_an_environment_that_cannot_be_built_has_its_reason(catalog, monkeypatch):
    """uv's sentence is the result, and no rank starts."""

    def sides(*_):
        raise UsageError("uv pip install … failed: No solution found: lib==3")

    monkeypatch.setattr(comparing, "sides", sides)
    found = compare_releases(("lib==2", "lib==3"), CELL, catalog, lambda *_: None, {})

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
    found = compare_releases(("here", "here"), cell, catalog, lambda *_: None, kept)

    assert (found.status, found.outcomes) == ("ok", ("fits", "fits"))
    assert kept["here", cell].readings.keys() == one.readings.keys()
