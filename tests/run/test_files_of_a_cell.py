"""The user's files that a cell depends on, wherever they are: imported outside of the repository, or read as data."""

import builtins
import contextlib
import io
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import gate_samples as samples
import msgspec
import pytest
from test_changes import commit
from test_changes import repository as in_git  # noqa: F401  a fixture

from perfsuite.catalog.cell import Cell, parse_cell
from perfsuite.catalog.definitions import Model, Workload
from perfsuite.catalog.registry import Catalog
from perfsuite.compare.pool import changed_since, run_of
from perfsuite.environments import git
from perfsuite.environments.content import MOST_BYTES
from perfsuite.rank.flags import own_code
from perfsuite.rank.loaded import is_installed
from perfsuite.rank.loaded import own_files as own_modules
from perfsuite.rank.opened import Opened
from perfsuite.records.change import Fixed
from perfsuite.records.packed import own_files, unpack
from perfsuite.run import changed
from perfsuite.run.changed import Changed
from perfsuite.run.environment_changes import code_change
from perfsuite.run.imports import MOST_LISTED, definitions_of, hash_of, outside, present, recorded
from perfsuite.run.runner import Runner, Settings
from perfsuite.system.paths import PACKAGE, cache_folder

MODEL = """\
import ctypes
import os
from pathlib import Path
from types import SimpleNamespace

import numpy
import torch

from common.nets import helper

WIDTHS = numpy.fromfile("data/widths.bin", dtype="uint8")
LIBRARY = ctypes.CDLL(os.path.abspath("data/mine.so"))


class Net(torch.nn.Module):
    def __init__(self, vocabulary):
        super().__init__()
        self.embed = torch.nn.Embedding(vocabulary, 16)
        self.out = torch.nn.Linear(16, vocabulary, bias=False)

    def forward(self, input_ids, attention_mask=None, labels=None):
        logits = self.out(helper.work(self.embed(input_ids)))
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        return SimpleNamespace(loss=loss, logits=logits)


def build(definition):
    vocabulary = len(Path("data/words.txt").read_text().split())
    Path("data/log.txt").open("a").write("built")
    Path("data/log.txt").read_text()
    return Net(vocabulary)
"""


def test_of_a_real_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sibling folder on the path was in no record, nor was what the model reads, nor what ctypes loads. What it
    writes is no data.
    """
    repository, sibling = tmp_path / "repository", tmp_path / "sibling"
    files = {
        repository / "model_of_mine.py": MODEL,
        repository / "data/words.txt": " ".join(map(str, range(64))),
        repository / "data/widths.bin": "abc",
        sibling / "common/__init__.py": "",
        sibling / "common/nets/__init__.py": "",
        sibling / "common/nets/helper.py": "def work(x):\n    return x\n",
    }
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    shutil.copy(msgspec._core.__file__, repository / "data/mine.so")  # any library
    subprocess.run(["git", "init", "-q"], cwd=repository, check=True)
    monkeypatch.chdir(repository)
    monkeypatch.setenv("PWD", str(repository))  # as cd does. A server that was started elsewhere is not lent then
    model = Model(
        name="net", family="mine", task="causal_lm", source="a test", parameters=2 * 64 * 16, vocabulary=64,
        workload=Workload(micro_batch=2, sequence_length=8), build="model_of_mine:build",
    )  # fmt: skip
    catalog = Catalog(extra_models=(model,))
    settings = Settings(steps=2, warmup=1, import_path=(str(repository), str(sibling), *sys.path))
    measured = []
    with contextlib.closing(Runner(catalog, settings)) as runner:
        for text in ("def work(x):\n    return x\n", "def work(x):\n    return x + 0\n"):
            (sibling / "common/nets/helper.py").write_text(text)
            measured.append(runner.measure(parse_cell("net-single-cpu_x1", catalog)))
    first, second = measured

    assert first.outcome == second.outcome == "fits", first.failure
    assert unpack(first.imports).keys() == {"model_of_mine.py", "data/words.txt", "data/widths.bin", "data/mine.so"}
    assert unpack(first.installed.outside).keys() == {
        "common/__init__.py", "common/nets/__init__.py", "common/nets/helper.py",
    }  # fmt: skip
    [told] = changed_since(run_of(first, samples.METRICS), second)
    assert told.name == "common/nets/helper.py"


def test_files_that_are_read(tmp_path: Path) -> None:
    """By whichever of Python's functions; not those that are written too, and not for longer than asked."""
    names = ["a", "b", "c", "d", "written"]
    for name in names:
        (tmp_path / name).write_text(name)
    before, opened = (builtins.open, io.open, os.open), Opened()
    with opened.watching():
        open(tmp_path / "a").close()
        (tmp_path / "b").read_text()
        os.close(os.open(os.fsencode(tmp_path / "c"), os.O_RDONLY))
        os.close(os.open(path=tmp_path / "c", flags=os.O_RDONLY))
        with open(file=tmp_path / "d", mode="rb") as file:
            os.fdopen(os.dup(file.fileno())).close()
        (tmp_path / "written").read_text()
        (tmp_path / "written").open("r+").close()
        with pytest.raises(FileNotFoundError):
            (tmp_path / "missing").read_text()
        with pytest.raises(TypeError):
            open()  # type: ignore[call-overload]  # noqa: SIM115
        with open(Path(msgspec.__file__)) as file:
            assert file.readable()
    (tmp_path / "written").read_text()

    assert (builtins.open, io.open, os.open) == before
    assert opened.files == sorted(str(tmp_path / name) for name in [*"abcd", "missing"])


def test_files_that_are_looked_for(tmp_path: Path) -> None:
    """Whether they are there or not, by whichever of Python's functions; not by a library for itself."""
    for name in ("a", "b", "read", "parts/c"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    before, opened = (os.stat, os.access, os.listdir, os.scandir), Opened()
    with opened.watching():
        assert os.path.exists(tmp_path / "a") and (tmp_path / "b").is_file() and not (tmp_path / "gone").exists()
        assert list((tmp_path / "parts").glob("*")) == [tmp_path / "parts/c"] and os.stat in os.supports_follow_symlinks
        assert (tmp_path / "read").exists() and not (tmp_path / "read").read_text()
        assert not os.access(tmp_path / "asked", os.R_OK)
    assert (os.stat, os.access, os.listdir, os.scandir) == before and list((tmp_path / "parts").glob("*"))

    names = ["a", "asked", "b", "gone", "parts/"]
    assert [place for place in opened.looked_for if place != str(tmp_path / "parts")] == [
        f"{tmp_path}/{name}" for name in names
    ]


def test_a_file_is_one_of_the_cell_if_its_presence_decides(tmp_path: Path) -> None:
    """One that is there, in a folder that is no data set; not what git ignores, since each machine has other output."""
    git.run(tmp_path, "init", "--quiet")
    for name in ("flag", "parts/1", "out/last.pt", *(f"data/{number}" for number in range(MOST_LISTED + 1))):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / ".gitignore").write_text("out\n")

    looked_for = ["flag", "gone", "out/last.pt", "parts/", "data/", "data"]
    assert present([f"{tmp_path}/{place}" for place in looked_for] + ["/etc/passwd"], tmp_path) == {
        f"{tmp_path}/{name}" for name in ("flag", "parts/1")
    }


def test_open_as_an_attribute_of_a_class(tmp_path: Path) -> None:
    """A function would get the object as its first argument."""
    (tmp_path / "a").touch()
    with Opened().watching():
        kind: Any = type("Reader", (), {"open": open})
    kind().open(tmp_path / "a").close()

    assert kind.open.__name__ == "open"


def test_what_is_installed_is_not_yours(tmp_path: Path) -> None:
    """Wherever its folder is: an environment for a trial adds that of another."""
    assert is_installed(msgspec.__file__) and is_installed(os.__file__)
    assert is_installed("/home/me/.local/lib/python3.11/site-packages/a.py")
    assert not is_installed(__file__)
    assert __file__ in own_modules()


def test_pythons_folders_are_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank imports thousands of modules, and sysconfig takes a millisecond for each answer."""
    is_installed(os.__file__)
    monkeypatch.setattr("sysconfig.get_path", None)

    assert is_installed(os.__file__) and not is_installed(__file__)


def test_files_elsewhere_are_known_by_their_modules(tmp_path: Path) -> None:
    """Another machine may have them in another folder. Two of one name count both."""
    places = [tmp_path / "one", tmp_path / "two"]
    for place in places:
        (place / "common" / "nets").mkdir(parents=True)
        for name in ("common/__init__.py", "common/nets/__init__.py", "common/nets/a.py", "alone.py"):
            (place / name).write_text(name)
    files = [str(path) for path in places[0].rglob("*.py")]
    moved = [str(path) for path in places[1].rglob("*.py")]
    found, root = outside(files, tmp_path / "repository"), tmp_path / "repository"

    assert unpack(found).keys() == {"common/__init__.py", "common/nets/__init__.py", "common/nets/a.py", "alone.py"}
    assert outside(moved, root) == found
    both = outside([*files, *moved], root)
    (places[1] / "alone.py").write_text("changed")
    assert unpack(both)["common/nets/a.py"] != unpack(found)["common/nets/a.py"]
    assert unpack(outside([*files, *moved], root))["alone.py"] != unpack(both)["alone.py"]


def test_perfsuite_and_its_cache_are_not_elsewhere(tmp_path: Path) -> None:
    """It measures; and compiled extensions and copies of revisions are made from what is compared already."""
    compiled = cache_folder() / "torchinductor" / "a.py"
    compiled.parent.mkdir(exist_ok=True)
    compiled.touch()

    assert outside([changed.__file__, str(compiled), "relative.py", str(tmp_path / "gone.py")], tmp_path / "root") == {}


def test_what_git_and_perfsuite_keep_is_no_data(tmp_path: Path) -> None:
    """Nor is a pipe, which nobody may be writing to."""
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").touch()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "data").touch()
    opened = [str(tmp_path / name) for name in (".git/HEAD", "pipe", "data", "gone")]
    catalog = Catalog()

    found = recorded([], parse_cell("gpt2_tiny-single-cpu_x1", catalog), catalog, tmp_path, opened)
    assert unpack(found).keys() == {"data"}
    assert own_files(found).keys() == {"data"}


def test_an_environment_in_the_repository_is_not_the_users(tmp_path: Path) -> None:
    """A project's .venv has perfsuite's own engines; the environment of the next machine is elsewhere."""
    catalog, packages = Catalog(), tmp_path / ".venv" / "lib" / "python3.11" / "site-packages"
    cell = parse_cell("gpt2_tiny-ddp+bf16-cpu_x2", catalog)
    assert own_names(cell, catalog, PACKAGE.parent) >= {"ddp.py", "precision.py"}
    shutil.copytree(PACKAGE / "engines", packages / "perfsuite" / "engines")
    shutil.copytree(PACKAGE / "techniques", packages / "perfsuite" / "techniques")
    (tmp_path / "mine.py").touch()
    for name, origin in catalog.origins.items():
        catalog.origins[name] = str(packages / Path(origin).relative_to(PACKAGE.parent))
    files = [*catalog.origins.values(), str(packages / "torch" / "nn.py"), str(tmp_path / "mine.py")]

    assert unpack(recorded(files, cell, catalog, tmp_path, files)).keys() == {"mine.py"}


def own_names(cell: Cell, catalog: Catalog, root: Path) -> set[str]:
    return {Path(path).name for path in definitions_of(cell, catalog, root)}


def test_a_very_large_file_is_not_read_whole(tmp_path: Path) -> None:
    """Its size and its beginning count."""
    path, hashes = tmp_path / "large", []
    for size, start in ((MOST_BYTES, b"a"), (MOST_BYTES + 1, b"a"), (MOST_BYTES + 1, b"b"), (2**40, b"b")):
        with path.open("wb") as file:
            file.write(start)
            file.truncate(size)
        hashes.append(hash_of(path))

    assert len(set(hashes)) == 4


@pytest.mark.parametrize("ignored", [True, False])
def test_data_that_git_ignores(in_git: Path, ignored: bool) -> None:  # noqa: F811
    """Only the hashes know it, and no commit has the older content."""
    name = "data.bin"
    before = commit(in_git, ".gitignore", "*.bin") if ignored else commit(in_git, name, "old")
    (in_git / name).write_text("old")
    old = hash_of(in_git / name)
    (in_git / name).write_text("new")
    found = code_change(before, in_git, {name: old}, {name: hash_of(in_git / name)})

    assert found is not None
    assert found.files == (name,)
    assert found.fixed == (Fixed.NOT_KEPT if ignored else None)


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        ("", ""),
        ("helper_of_mine.py", "helper_of_mine.py changed, outside of the repository"),
        ("lib_of_mine/deep.py", "lib_of_mine/deep.py changed, outside of the repository"),
        ("gone", "lib_of_mine/deep.py changed, outside of the repository"),
    ],
)
def test_a_change_elsewhere_reaches_a_cell(
    in_git: Path,  # noqa: F811
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    edit: str,
    told: str,
) -> None:
    """--perf-changed asks git, which does not know these files."""
    place = tmp_path_factory.mktemp("elsewhere")
    (place / "lib_of_mine").mkdir()
    for name in ("helper_of_mine.py", "lib_of_mine/__init__.py", "lib_of_mine/deep.py"):
        (place / name).write_text("")
    monkeypatch.syspath_prepend(place)
    commit(in_git, "x.py", "x = 1")
    record = outside(map(str, place.rglob("*.py")), in_git)
    measured = msgspec.structs.replace(
        samples.measurement(), versions={}, imports={".": f"x.py:{hash_of(in_git / 'x.py')}"},
        installed=msgspec.structs.replace(samples.measurement().installed, outside=record),
        flags={"perfsuite's code": own_code()},
    )  # fmt: skip
    if edit == "gone":
        (place / "lib_of_mine" / "deep.py").unlink()
    elif edit:
        (place / edit).write_text("slow = True")

    assert Changed.since("HEAD", in_git).why(measured, ()) == told
    assert "lib_of_mine" not in sys.modules
