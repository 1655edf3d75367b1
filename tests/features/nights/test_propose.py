"""``perfsuite notify --propose``: one branch and one pull request of baselines, against a stand-in of GitHub."""

import json
import subprocess

import msgspec
import pytest
from gate_samples import CELL, GIB, LAUNCH, METRICS, baseline, measurement, memory
from whole_reports import write_report

from perfsuite.baselines.store import Store
from perfsuite.catalog.registry import Catalog
from perfsuite.cli.main import main
from perfsuite.compare.judge import judge
from perfsuite.records import codec
from perfsuite.records.result import Result

NEW = "gpt2_tiny-ddp-cpu_x2"
OTHER = "bloom_tiny-ddp-cpu_x2"
WORSE = "llama_tiny-ddp-cpu_x2"
GIT = ["git", "-c", "user.name=x", "-c", "user.email=x@localhost"]


def named(record, cell, **fields):
    return msgspec.structs.replace(record, cell=cell, **fields)


def stored(cell=CELL):
    return named(baseline(), cell, measurement=named(baseline().measurement, cell))


def result(cell, peak=20 * GIB, old=None, updated="baselines/x.json", day=20):
    """A night's result of a cell, accepted by its machine unless ``updated`` is empty."""
    launch = msgspec.structs.replace(LAUNCH, date=f"2026-11-{day}T02:17:00+00:00")
    new = named(measurement(peak_memory_bytes=memory(peak)), cell, launches=[launch])
    verdict = judge(new, old, METRICS, strategy="zero3")
    return Result(measurement=new, baseline=old, verdict=verdict, updated=updated)


IMPROVED = result(CELL, 19 * GIB, stored())
REGRESSED = result(WORSE, 22 * GIB, stored(WORSE))


@pytest.fixture
def repository(tmp_path, monkeypatch, forge):
    """A clone with two baselines, whose commit the forge knows."""
    root = tmp_path / "clone"
    for cell in (CELL, WORSE):
        path = Store(root / "baselines").path(cell)
        path.parent.mkdir(parents=True, exist_ok=True)
        codec.write(path, stored(cell))
    for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "x"]):
        subprocess.run([*GIT, *words], cwd=root, check=True)
    head = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=root, text=True).strip()
    names = subprocess.check_output(["git", "ls-files"], cwd=root, text=True).split()
    forge.commits[head] = None, {name: (root / name).read_text() for name in names}
    monkeypatch.chdir(root)
    return root


def propose(folder, *results, options=("--github", "lab/code")):
    """The exit code for a report of these results."""
    path = folder / "night.jsonl"
    write_report(path, results)
    return main(["notify", "--propose", str(path), *options])


def proposed(forge):
    """The cells on the branch, with their peaks in GiB; and those of its ledger."""
    files = {name: text for name, text in forge.proposed().items() if forge.commits["main"][1].get(name) != text}
    files.pop("baselines/.gitattributes", None)
    ledger = [json.loads(line)["cell"] for line in files.pop("baselines/ledger.jsonl", "").splitlines()]
    read = [json.loads(text)["measurement"] for text in files.values()]
    return {one["cell"]: one["readings"]["peak_memory_bytes"]["value"] // GIB for one in read}, sorted(ledger)


@pytest.fixture(autouse=True)
def main_branch(repository, forge):
    (forge.commits["main"],) = forge.commits.values()


def test_two_nights_are_one_branch_and_one_pull_request(repository, forge, capsys):
    """The second night moves the branch and updates the text."""
    assert propose(repository, result(NEW), IMPROVED, REGRESSED) == 0
    assert "opened #1 Baselines: 1 new, 1 improved" in capsys.readouterr().out
    assert propose(repository, result(NEW, 21 * GIB, day=21), result(CELL, old=stored(), updated="", day=21)) == 0
    assert "updated #1 Baselines: 1 new" in capsys.readouterr().out

    assert [pull["title"] for pull in forge.pulls] == ["Baselines: 1 new"]
    assert {name for name, _ in forge.pushes} == {"perfsuite-baselines"}
    assert proposed(forge) == ({NEW: 21}, [NEW])


def test_the_same_night_twice_changes_nothing(repository, forge, capsys):
    """Nobody is mailed about a branch that only has another date."""
    for _ in range(2):
        assert propose(repository, result(NEW), IMPROVED) == 0

    assert len(forge.pushes) == len(forge.pulls) == 1
    assert "unchanged #1" in capsys.readouterr().out


def test_only_new_and_improved_cells_are_proposed(repository, forge):
    """Not what regressed, even if somebody accepted it; not what a machine did not accept; and no time alone."""
    times = result(CELL, old=stored())
    wrong = msgspec.structs.replace(result(OTHER), verdict=REGRESSED.verdict)
    assert propose(repository, REGRESSED, times, wrong, result(NEW, updated="")) == 0
    assert forge.pulls == forge.pushes == []


def test_a_branch_is_one_commit_on_the_measured_one(repository, forge):
    """So it never conflicts with itself, and the working tree is left alone."""
    propose(repository, IMPROVED)
    parent, _ = forge.commits[forge.branches["perfsuite-baselines"]]
    status = subprocess.check_output(["git", "status", "--porcelain"], cwd=repository, text=True)

    assert parent == subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=repository, text=True).strip()
    assert status.split() == ["??", "night.jsonl"]
    assert proposed(forge) == ({CELL: 19}, [CELL])


def test_a_cell_that_was_not_measured_stays_proposed(repository, forge):
    """A machine that is down for a night takes nothing back."""
    propose(repository, result(NEW), result(OTHER))
    propose(repository, result(NEW, 21 * GIB, day=21))

    assert proposed(forge) == ({NEW: 21, OTHER: 20}, sorted([NEW, OTHER]))
    assert forge.pulls[0]["title"] == "Baselines: 1 new, 1 from before"
    assert f"`{OTHER}`" in forge.pulls[0]["body"]


def test_a_proposal_without_a_cell_is_closed(repository, forge):
    """With a comment; and the next one is a new pull request from the same branch."""
    propose(repository, IMPROVED)
    propose(repository, result(CELL, old=stored(), updated="", day=21))
    assert forge.open_pulls() == []
    assert forge.comments == [(1, "Nothing is left to propose.")]
    propose(repository, result(CELL, 18 * GIB, stored(), day=22))
    assert [pull["number"] for pull in forge.open_pulls()] == [2]
    assert {name for name, _ in forge.pushes} == {"perfsuite-baselines"}


def test_the_second_opinion_counts(repository, forge):
    """Of a cell that was measured again, the last result; the first was not accepted."""
    first = result(CELL, 19 * GIB, stored(), updated="", day=20)
    assert propose(repository, result(CELL, 18 * GIB, stored(), day=21), first) == 0
    assert proposed(forge) == ({CELL: 18}, [CELL])


def test_the_baselines_on_the_branch_can_be_read(repository, forge, tmp_path):
    """As if pytest had accepted them."""
    propose(repository, IMPROVED)
    path = Store(tmp_path / "there").path(CELL)
    path.parent.mkdir(parents=True)
    path.write_text(forge.proposed()[f"baselines/cpu_x2/{CELL}.json"])
    loaded = Store(tmp_path / "there").load(CELL)

    assert loaded.measurement == IMPROVED.measurement
    assert Catalog().metrics("training")
    assert loaded.times[-1].values["step_time_seconds"] == 0.41


def test_another_commit_s_report_is_refused(repository, forge, capsys):
    """Its verdict is about another baseline."""
    stale = msgspec.structs.replace(stored(), date="2026-01-01T00:00:00+00:00")
    assert propose(repository, result(CELL, 19 * GIB, stale)) == 2
    assert f"{CELL} was compared with another baseline than the one here" in capsys.readouterr().err
    assert forge.pushes == []


def test_without_a_forge_it_prints(repository, forge, capsys):
    """And writes nothing."""
    assert propose(repository, result(NEW), IMPROVED, options=()) == 0
    assert sorted(capsys.readouterr().out.split("\n")) == ["", f"improved {CELL}", f"new {NEW}"]
    assert propose(repository, options=()) == 0
    assert capsys.readouterr().out == "Nothing to propose.\n"


def test_a_night_without_reports_is_an_error(repository, forge, tmp_path, capsys):
    """Nothing arrived is not the same as nothing is new: the pull request stays as it is."""
    (tmp_path / "empty").mkdir()
    assert main(["notify", "--propose", str(tmp_path / "empty"), "--github", "lab/code"]) == 2
    assert "empty has no report of pytest --perf-report" in capsys.readouterr().err
