"""Choosing cells: shards, time budgets, and what a change can reach. No cell is trained."""

import math
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from gate_samples import CELL, GIB, LAUNCH, METRICS, baseline, measurement, memory
from hypothesis import given
from hypothesis import strategies as st

from perfsuite.baselines.store import Store
from perfsuite.catalog.cell import parse_cell
from perfsuite.catalog.registry import Catalog
from perfsuite.compare.judge import judge
from perfsuite.errors import UsageError
from perfsuite.rank.flags import own_code
from perfsuite.records import codec
from perfsuite.records.measurement import OWN_CODE
from perfsuite.records.packed import pack, unpack
from perfsuite.records.result import Result
from perfsuite.run.changed import Changed
from perfsuite.run.choice import parse_shard, shard, with_usual, within
from perfsuite.run.imports import by_module, hash_of, reached, recorded
from perfsuite.run.past import Past, read_history
from perfsuite.system.machine import version_of

COSTS = st.dictionaries(st.text("abcdef", min_size=1), st.floats(0, 1e4), max_size=40)
GIT = ["git", "-c", "user.name=x", "-c", "user.email=x@localhost"]


@given(COSTS, st.integers(1, 9))
def test_shards_are_disjoint_and_complete(costs, count):
    """Each cell is in exactly one of them, and no order of the cells changes in which."""
    shards = [shard(costs, number, count) for number in range(1, count + 1)]
    again = [shard(dict(reversed(costs.items())), number, count) for number in range(1, count + 1)]

    assert sorted(name for one in shards for name in one) == sorted(costs)
    assert shards == again


@given(COSTS, st.integers(1, 9))
def test_shards_are_balanced(costs, count):
    """The longest shard exceeds the shortest by one cell at most."""
    usual = with_usual(costs)
    loads = [sum(usual[name] for name in shard(costs, number, count)) for number in range(1, count + 1)]

    assert max(loads) - min(loads) <= max(usual.values(), default=0) * (1 + 1e-9)


@given(COSTS, st.floats(1, 1e5))
def test_a_budget_is_kept(costs, budget):
    """And nothing that would still fit is left out."""
    usual, rates = with_usual(costs), dict.fromkeys(costs, 0.5)
    chosen = within(costs, rates, budget)
    left = budget - math.fsum(usual[name] for name in chosen)

    assert left >= -1e-6 * budget
    assert [name for name in costs if name not in chosen and usual[name] < left - 1e-6 * budget] == []


def test_what_tells_most_per_minute_comes_first():
    """Twice as likely to move is worth twice the time; of equals, the cheaper one."""
    seconds = {"long": 60.0, "short": 10.0, "lively": 12.0}
    rates = {"long": 0.5, "short": 0.1, "lively": 0.6}

    assert within(seconds, rates, 1000) == ["lively", "short", "long"]
    assert within(seconds, rates, 15) == ["lively"]


def test_a_cell_without_a_record_is_likely_to_tell():
    """More than one that was green ten times, and less than one that moves every time."""
    assert Past(runs=10).rate < Past().rate < Past(runs=10, moved=10).rate


@pytest.mark.parametrize("text", ["0/8", "9/8", "2", "2/0", "-1/8", "a/b", ""])
def test_a_shard_that_is_none(text):
    """One sentence, with an example."""
    with pytest.raises(UsageError, match="from 1/8 to 8/8"):
        parse_shard(text)


def result(peak, day, seconds=0.0):
    launch = msgspec.structs.replace(LAUNCH, date=f"2026-11-{day}T02:17:00+00:00")
    readings = {"peak_memory_bytes": memory(peak)} if peak else {}
    new = msgspec.structs.replace(measurement(**readings), launches=[launch])
    verdict = judge(new, baseline(), METRICS, strategy="zero3")
    return Result(measurement=new, baseline=baseline(), verdict=verdict, seconds=seconds)


def test_history_is_that_of_reports_and_of_the_baselines(tmp_path):
    """The newest report wins, whatever its place; the baseline is for cells that no report has."""
    store = Store(tmp_path / "baselines")
    path = store.path(CELL)
    path.parent.mkdir(parents=True)
    codec.write(path, baseline())
    assert read_history([CELL], store).of(CELL).seconds == 1.0  # three launches took 3 s
    reports = [tmp_path / f"{number}.jsonl" for number in range(2)]
    reports[0].write_text(codec.encode_line(result(22 * GIB, 21, seconds=70.0)))
    reports[1].write_text(codec.encode_line(result(None, 20, seconds=9.0)))
    past = read_history([CELL], store, reports).of(CELL)

    assert (past.seconds, past.runs, past.moved) == (70.0, 2, 1)
    assert past.measurement.launches[0].date.startswith("2026-11-21")
    assert read_history([CELL], store).of("other") == Past()


def test_a_budget_asks_this_machine(tmp_path):
    """An older report of this machine counts more than a newer one of another; a shard takes the newest."""
    store = Store(tmp_path / "baselines")
    reports = [tmp_path / f"{number}.jsonl" for number in range(2)]
    old, new = (result(22 * GIB, day, seconds=cost) for day, cost in ((20, 30.0), (21, 70.0)))
    elsewhere = msgspec.structs.replace(new.measurement.machine, identity="elsewhere")
    new = msgspec.structs.replace(new, measurement=msgspec.structs.replace(new.measurement, machine=elsewhere))
    for path, one in zip(reports, (old, new), strict=True):
        path.write_text(codec.encode_line(one))
    here = read_history([CELL], store, reports, {old.measurement.machine.identity}).of(CELL)
    any_machine = read_history([CELL], store, reports).of(CELL)

    assert (here.seconds, here.source) == (30.0, "2 reports of this machine")
    assert (any_machine.seconds, any_machine.source) == (70.0, "2 reports")


def test_a_baseline_s_cost_is_scaled(tmp_path):
    """By the cells that a report has too: here everything takes seventy times as long."""
    store = Store(tmp_path / "baselines")
    other = CELL.replace("t5_tiny", "t5_base")
    for name in (CELL, other):
        path = store.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        stored = msgspec.structs.replace(baseline(), cell=name)
        codec.write(
            path, msgspec.structs.replace(stored, measurement=msgspec.structs.replace(stored.measurement, cell=name))
        )
    report = tmp_path / "run.jsonl"
    report.write_text(codec.encode_line(result(22 * GIB, 21, seconds=70.0)))
    past = read_history([CELL, other], store, [report]).of(other)

    assert (past.seconds, past.source) == (70.0, "baselines × 70")
    assert read_history([CELL, other], store).of(other).source == "baselines"


@pytest.mark.parametrize("imports", [{}, {"a.py": "1f0c93ab", "b/c.py": "77de0a41", "b/d e.py": "00000000"}])
def test_a_record_reads_back(imports):
    """Also of a file at the top, and of a name with a blank."""
    assert unpack(pack(imports)) == imports


@pytest.fixture
def repository(tmp_path):
    """A repository with a model, what it imports, data beside it, and others' files; one commit."""
    files = {
        "net/__init__.py": "",
        "net/model.py": "from net import layers\n",
        "net/layers.py": "X = 1\n",
        "net/sizes.json": "{}\n",
        "other/model.py": "import json\n",
        "tests/test_it.py": "def test_it(): ...\n",
        "README.md": "Hello\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    commit(tmp_path, "init", "--quiet")
    return tmp_path


def commit(folder: Path, *first: str) -> None:
    for words in ([*first] if first else ["status"], ["add", "."], ["commit", "--quiet", "-m", "x"]):
        subprocess.run([*GIT, *words], cwd=folder, check=True, capture_output=True)


def record(folder, names=("net/__init__.py", "net/model.py", "net/layers.py"), **versions):
    """A measurement that imported these files as they are now, with the libraries of here."""
    here = {"python": sys.version.split()[0], "msgspec": version_of("msgspec"), "cpu kernels": "avx2", **versions}
    imports = pack({name: hash_of(folder / name) for name in names})
    return msgspec.structs.replace(measurement(), versions=here, flags={OWN_CODE: own_code()}, imports=imports)


def why(folder, measured, since="HEAD", watched=("tests/test_it.py",)):
    return Changed.since(since, folder).why(measured, watched)


def test_git_s_hash(repository):
    """So that a record can be compared with a revision, without its files."""
    told = subprocess.check_output(["git", "hash-object", "net/layers.py"], cwd=repository, text=True)

    assert told.startswith(hash_of(repository / "net/layers.py").partition(".")[0])
    assert [len(one) for one in hash_of(repository / "net/layers.py").split(".")] == [8, 8]


def test_nothing_has_changed(repository):
    """Then no cell with a record needs to run."""
    assert why(repository, record(repository)) == ""


@pytest.mark.parametrize(
    ("file", "told"),
    [
        ("net/layers.py", "net/layers.py changed"),
        ("net/sizes.json", "net/sizes.json changed"),
        ("net/new.json", "net/new.json changed"),
        ("tests/test_it.py", "tests/test_it.py changed"),
        ("other/model.py", ""),
        ("other/new.py", ""),
        ("README.md", ""),
    ],
)
@pytest.mark.parametrize("committed", [False, True])
def test_a_change_reaches_what_imports_it(repository, file, told, committed):
    """Committed since the revision or not, new or old; data count beside an imported file."""
    measured = record(repository)
    (repository / file).write_text("Y = 2\n")
    if committed:
        commit(repository)

    assert why(repository, measured, "HEAD~1" if committed else "HEAD") == told


def test_a_comment_reaches_nothing(repository):
    """The code of the file is that of the record."""
    measured = record(repository)
    (repository / "net/layers.py").write_text('"""Layers."""\n\nX = 1  # more\n')

    assert why(repository, measured) == ""


@pytest.mark.parametrize(
    ("file", "told"),
    [
        ("net/data/new.bin", "net/data/new.bin changed"),
        ("data/second/deep/new.bin", "data/second/deep/new.bin changed"),
        ("pictures/new.png", ""),
        ("other/data/new.bin", ""),
    ],
)
def test_a_new_folder_of_data_belongs_to_what_is_around_it(repository, file, told):
    """Code that reads all folders of one finds a new one too. Committed data of another folder stays apart."""
    (repository / "data/first").mkdir(parents=True)
    (repository / "data/first/old.bin").write_text("1\n")
    commit(repository)
    measured = record(repository, ("net/model.py", "data/first/old.bin"))
    (repository / file).parent.mkdir(parents=True)
    (repository / file).write_text("2\n")

    assert why(repository, measured) == told


def test_a_new_folder_beside_a_script_at_the_top_reaches_it(repository):
    """It may list what is there."""
    (repository / "train.py").write_text("X = 1\n")
    commit(repository)
    (repository / "data").mkdir()
    (repository / "data/new.bin").write_text("2\n")

    assert why(repository, record(repository, ("train.py",))) == "data/new.bin changed"


@pytest.mark.parametrize(
    ("file", "reaches"),
    [
        ("fast/kernels.py", True),  # which an optional import did not find
        ("fast.py", True),
        ("scripts/fast.py", True),
        ("scripts/json.py", True),  # before that of Python
        ("sitecustomize.py", True),
        ("slow.py", False),
        ("other/fast.py", False),  # where Python does not look
    ],
)
def test_a_new_module_reaches_what_asks_for_its_name(repository, file, reaches):
    """Python may find it now: next to the script, or in the repository's folder."""
    (repository / "scripts").mkdir()
    text = "import json\ntry:\n    from fast import kernels\nexcept ImportError:\n    kernels = None\n"
    (repository / "scripts/train.py").write_text(text)
    commit(repository)
    measured = record(repository, ("scripts/train.py",))
    (repository / file).parent.mkdir(exist_ok=True)
    (repository / file).write_text("kernels = 1\n")

    assert why(repository, measured) == (f"{file} changed" if reaches else "")


def test_what_is_removed_has_changed(repository):
    """Its cell would fail."""
    measured = record(repository)
    (repository / "net/layers.py").unlink()

    assert why(repository, measured) == "net/layers.py changed"


@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
def test_a_file_that_git_does_not_look_at_has_changed(flag, repository):
    """A sparse checkout marks files so."""
    measured = record(repository)
    subprocess.run([*GIT, "update-index", flag, "net/layers.py"], cwd=repository, check=True)
    assert why(repository, measured) == ""

    (repository / "net/layers.py").write_text("X = 2\n")
    assert why(repository, measured) == "net/layers.py changed"


def test_a_file_that_git_ignores_has_changed(repository):
    """Settings of one's own. Another machine may have none."""
    (repository / ".gitignore").write_text("mine.json\n")
    (repository / "net/mine.json").write_text("1\n")
    commit(repository)
    measured = record(repository, ("net/model.py", "net/mine.json"))
    assert why(repository, measured) == ""

    (repository / "net/mine.json").write_text("2\n")
    assert why(repository, measured) == "net/mine.json changed"

    (repository / "net/mine.json").unlink()
    assert why(repository, measured) == ""


def test_a_replaced_commit_hides_nothing(repository):
    """git would show the new commit in place of the old one."""
    measured = record(repository)
    (repository / "net/layers.py").write_text("X = 2\n")
    commit(repository)
    subprocess.run([*GIT, "replace", "HEAD~1", "HEAD"], cwd=repository, check=True)

    assert why(repository, measured, "HEAD~1") == "net/layers.py changed"


def test_a_cell_without_a_record_runs(repository):
    """Neither a missing baseline nor one of an older perfsuite says what it imports."""
    assert why(repository, None) == why(repository, measurement()) == "no record of what it imports"


def test_another_release_runs_everything(repository):
    """Of a library of the record, or of one that is gone."""
    assert why(repository, record(repository, msgspec="0.0.1")).startswith("msgspec 0.0.1 -> ")
    assert why(repository, record(repository, gone="1.0")) == "gone 1.0 -> none"


def test_a_record_older_than_the_revision_is_followed(repository):
    """A file that has begun to import another since the record counts with it; one that has not does not."""
    measured = record(repository)
    (repository / "net/layers.py").write_text("import other.model\n")
    commit(repository)
    assert why(repository, measured) == ""
    (repository / "other/model.py").write_text("Y = 2\n")
    assert why(repository, measured) == "other/model.py changed"


def test_what_a_conftest_imports_counts(repository):
    """It may define the model, although no rank imports it."""
    (repository / "tests/conftest.py").write_text("from other.model import MODELS\n")
    commit(repository)
    measured = record(repository)
    (repository / "other/model.py").write_text("MODELS = []\n")

    assert why(repository, measured, watched=("tests/conftest.py",)) == "other/model.py changed"
    assert why(repository, measured, watched=()) == ""


def test_the_branch_counts_from_where_it_left(repository):
    """What the target branch got meanwhile is not a change of this one."""
    measured = record(repository)
    subprocess.run([*GIT, "branch", "mine"], cwd=repository, check=True)
    (repository / "net/layers.py").write_text("Y = 2\n")
    commit(repository)
    subprocess.run([*GIT, "branch", "target"], cwd=repository, check=True)
    subprocess.run([*GIT, "checkout", "--quiet", "mine"], cwd=repository, check=True)

    assert why(repository, measured, "target") == ""


def test_an_unknown_revision_teaches(repository):
    """With what to write."""
    with pytest.raises(UsageError, match=r"--perf-changed=nope: .* --perf-changed=origin/main, and fetch"):
        Changed.since("nope", repository)


def test_imports_are_read_from_the_text(tmp_path):
    """Anywhere in a file, relative ones too, through other files."""
    (tmp_path / "a.py").write_text("def f():\n    from . import b\n")
    (tmp_path / "b.py").write_text("import pkg.c as c\n")
    (tmp_path / "pkg").mkdir()
    for name in ("pkg/__init__.py", "pkg/c.py", "pkg/d.py"):
        (tmp_path / name).write_text("")

    known = ["a.py", "b.py", "pkg/__init__.py", "pkg/c.py", "pkg/d.py"]
    assert reached(["a.py"], by_module(known), tmp_path) - {"pkg/__init__.py"} == {"b.py", "pkg/c.py"}


def test_other_cells_definitions_are_left_out():
    """Ranks import every engine to find one; a record has its own, and what that one imports."""
    root, catalog = Path(__file__).resolve().parents[2], Catalog()
    cell = parse_cell("llama_tiny-autotp-cpu_x2", catalog)
    catalog.all("study")
    files = [str(path) for path in (root / "perfsuite").rglob("*.py")]
    found = unpack(recorded(files, cell, catalog, root))

    models = "perfsuite/catalog/models"
    own = {f"{models}/llama.toml", "perfsuite/engines/autotp.py", "perfsuite/rank/main.py"}
    assert own <= set(found)
    assert not {"perfsuite/engines/ddp.py", f"{models}/bloom.py", f"{models}/bloom.toml"} & set(found)
    assert found["perfsuite/rank/main.py"] == hash_of(root / "perfsuite/rank/main.py")
