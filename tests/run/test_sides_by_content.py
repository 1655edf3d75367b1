"""A slower step in a user's script, committed, in every way in which people keep code: none of them is green.

Each test runs the commands: a baseline was recorded, something was done to the repository, the step got slower. The
verdict is red, and names the code; or, if the older code is nowhere, it says how to get it.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

TRAIN = """\
import torch
from pause import pause
torch.manual_seed(0)
with open("data/train.bin", "rb") as file:
    rows = len(file.read())
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(400):
    loss = model(torch.ones(4, 8)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    pause(rows)
    optimizer.step()
"""
PAUSE = """\
import time


def pause(rows):
    time.sleep(0.004 * rows)
"""
TEST = """\
import pytest


@pytest.mark.perf_script("train.py")
def test_cell(perf_cell):
    perf_cell.check()
"""
IGNORED = "__pycache__/\ndata/\n*.egg-info/\nbuild/\n"
FILES = {"train.py": TRAIN, "pause.py": PAUSE, "test_train.py": TEST, ".gitignore": IGNORED}
FAST = ["-o", "perf_launches=1", "-o", "perf_busy_share=1"]
WHO = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always", "-c", "commit.gpgsign=false"]
CAUSE = "caused by your code"


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *WHO, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def commit(folder: Path, message: str = "a commit") -> None:
    """Everything that is there."""
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", message)


def perf(folder: Path, *options: str, python: str = sys.executable, **variables: str) -> tuple[int, str]:
    """`pytest --perf` there: its exit code and what it says."""
    command = [python, "-m", "pytest", "--perf", "-q", "-p", "no:cacheprovider", *FAST, *options]
    environment = {**os.environ, **variables}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environment)
    print(done.stdout, done.stderr)
    return done.returncode, " ".join(done.stdout.split())


def green(folder: Path) -> bool:
    """One green run there, whose times are kept. A launch's host memory may differ from another one's by a step."""
    return any(perf(folder)[0] == 0 for _ in range(3))


def record(folder: Path, **how: str) -> None:
    """Commit a new baseline."""
    shutil.rmtree(folder / "baselines", ignore_errors=True)
    assert perf(folder, "--perf-update=new", "--perf-reason=new", **how)[0] == 0
    commit(folder, "baseline")


def slower(folder: Path, file: str = "pause.py") -> None:
    """Commit a step that is four times slower."""
    path = folder / file
    path.write_text(path.read_text().replace("0.004", "0.02"))
    commit(folder, "slow")


def elsewhere(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Another machine: nothing of the first one's cache is there."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "another cache"))
    (folder / "another cache").mkdir()


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the repository ``here``, whose baseline is committed, and the ``cache`` of the machine."""
    top = tmp_path_factory.mktemp("first")
    here = top / "here"
    (here / "data").mkdir(parents=True)
    (top / "cache").mkdir()
    (here / "data" / "train.bin").write_bytes(b"1")
    for name, text in FILES.items():
        (here / name).write_text(text)
    git(here, "init", "-q", "-b", "main")
    commit(here, "code")
    perf(here, XDG_CACHE_HOME=str(top / "cache"))  # the first launch of a machine compiles, in processes of its own
    record(here, XDG_CACHE_HOME=str(top / "cache"))
    return top


@pytest.fixture
def here(first: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """That repository, for one test, on the machine of the baseline."""
    shutil.copytree(first, tmp_path, dirs_exist_ok=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "here"


def clone(source: Path, target: Path, *options: str) -> Path:
    """A clone with the data, which is in no commit."""
    git(target.parent, "clone", "-q", *options, source.as_uri(), str(target))
    shutil.copytree(source / "data" if (source / "data").exists() else source.parent / "here" / "data", target / "data")
    return target


def squashed(here: Path) -> Path:
    """The branch of the baseline is squashed, deleted and gone."""
    git(here, "checkout", "-q", "--orphan", "squashed")
    commit(here, "all in one")
    git(here, "branch", "-qD", "main")
    git(here, "reflog", "expire", "--expire=now", "--all")
    git(here, "gc", "-q", "--prune=now")
    slower(here)
    return here


def shallow(here: Path) -> Path:
    """``git clone --depth 1``, as a workflow does."""
    slower(here)
    return clone(here, here.parent / "shallow", "--depth=1")


def shallow_mirror(here: Path) -> Path:
    """The same of a bare mirror."""
    slower(here)
    git(here.parent, "clone", "-q", "--mirror", str(here), "mirror.git")
    return clone(here.parent / "mirror.git", here.parent / "clone", "--depth=1")


def partial(here: Path) -> Path:
    """A clone that fetches contents when it needs them."""
    slower(here)
    git(here, "config", "uploadpack.allowFilter", "true")
    git(here, "config", "uploadpack.allowAnySHA1InWant", "true")
    return clone(here, here.parent / "partial", "--filter=blob:none")


def worktree(here: Path) -> Path:
    """The slow commit is in a worktree."""
    git(here, "worktree", "add", "-q", "../worktree", "-b", "work")
    shutil.copytree(here / "data", here.parent / "worktree" / "data")
    slower(here.parent / "worktree")
    return here.parent / "worktree"


def detached(here: Path) -> Path:
    """No branch has the slow commit."""
    git(here, "checkout", "-q", "--detach")
    slower(here)
    return here


def cherry_picked(here: Path) -> Path:
    """The baseline comes from a branch that shares no commit with this one."""
    git(here, "checkout", "-q", "--orphan", "other")
    git(here, "rm", "-rqf", "--cached", "baselines")
    (here / "baselines").rename(here.parent / "away")
    slower(here)
    git(here, "cherry-pick", "main")
    return here


def uncommitted(here: Path) -> Path:
    """The slow code is not even committed."""
    slower(here)
    git(here, "reset", "-q", "--soft", "HEAD~1")
    return here


SITUATIONS: list[Callable[[Path], Path]] = [
    squashed, shallow, shallow_mirror, partial, worktree, detached, cherry_picked, uncommitted,
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("situation", SITUATIONS)
def test_slow_code_is_red_on_another_machine(
    here: Path, situation: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """git alone has the older code, which is found by what it is."""
    elsewhere(monkeypatch, tmp_path)
    status, said = perf(situation(here))

    assert status == 1
    assert CAUSE in said
    assert "(pause.py)" in said


@pytest.mark.slow
@pytest.mark.parametrize("situation", [shallow, worktree])
def test_the_same_code_is_green(
    here: Path, situation: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It differs in nothing, so nothing is tried."""
    monkeypatch.setattr(sys.modules[__name__], "slower", lambda folder: None)
    elsewhere(monkeypatch, tmp_path)
    status, said = perf(situation(here))

    assert status == 0
    assert "your code" not in said


@pytest.mark.slow
def test_a_run_at_a_commit_of_another_clone(here: Path, tmp_path: Path) -> None:
    """This machine's newest times are of code that this clone never had."""
    other = clone(here, tmp_path / "other")
    (other / "pause.py").write_text(f"# a comment\n{PAUSE}")
    commit(other)
    assert green(other)
    slower(here)
    status, said = perf(here)

    assert status == 1
    assert CAUSE in said


@pytest.mark.slow
def test_a_run_with_an_uncommitted_comment(here: Path) -> None:
    """Its code is in no commit at that time."""
    (here / "pause.py").write_text(f"# a comment\n{PAUSE}")
    assert green(here)
    commit(here)
    slower(here)
    status, said = perf(here)

    assert status == 1
    assert CAUSE in said


@pytest.mark.slow
def test_data_that_git_ignores(here: Path) -> None:
    """It is the same on both sides, and if it is what changed, the machine has kept what it was."""
    slower(here)
    assert CAUSE in perf(here)[1]
    git(here, "reset", "-q", "--hard", "HEAD~1")
    (here / "data" / "train.bin").write_bytes(b"12345")
    status, said = perf(here)

    assert status == 1
    assert CAUSE in said
    assert "(data/train.bin)" in said


@pytest.mark.slow
def test_ignored_data_that_was_not_kept(here: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Another machine never had the older data: the verdict says so."""
    elsewhere(monkeypatch, tmp_path)
    (here / "data" / "train.bin").write_bytes(b"12345")
    status, said = perf(here)

    assert "the older content of data/train.bin is in no commit here" in said
    assert status == 1


INSTALLED = """\
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "pausing"
version = "1.0"
"""


@pytest.mark.slow
@pytest.mark.parametrize("editable", [False, True])
def test_a_package_that_is_installed_from_this_repository(here: Path, tmp_path: Path, editable: bool) -> None:
    """By ``pip install .``, whose copy is code of the repository. The baseline's may have been editable."""
    (here / "src").mkdir()
    git(here, "mv", "pause.py", "src/pause.py")
    (here / "pyproject.toml").write_text(INSTALLED)
    commit(here)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages, ours = (
        Path(subprocess.run([one, "-c", code], capture_output=True, text=True, check=True).stdout.strip())
        for one in (python, sys.executable)
    )
    (packages / "ours.pth").write_text(f"import site; site.addsitedir({str(ours)!r})\n")

    def install(*how: str) -> None:
        command = [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--force-reinstall", "--no-index"]
        subprocess.run([*command, "--no-deps", "--no-build-isolation", *how, "."], cwd=here, check=True)

    install(*(["-e"] if editable else []))
    record(here, python=python)
    slower(here, "src/pause.py")
    install()
    status, said = perf(here, python=python)

    assert status == 1
    assert CAUSE in said
    assert "(src/pause.py)" in said


@pytest.mark.slow
def test_git_refuses_the_repository(here: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The same code needs no git. Other code is red with git's own message."""
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    elsewhere(monkeypatch, tmp_path)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    assert perf(here)[0] == 0
    (here / "pause.py").write_text(PAUSE.replace("0.004", "0.02"))
    shutil.rmtree(tmp_path / "another cache" / "perfsuite" / "contents", ignore_errors=True)
    status, said = perf(here)

    assert "detected dubious ownership" in said
    assert status == 1


@pytest.mark.slow
def test_git_refuses_the_repository_but_the_machine_has_the_code(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What its own runs kept is enough."""
    slower(here)
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    status, said = perf(here)

    assert status == 1
    assert CAUSE in said


@pytest.mark.slow
def test_an_archive_on_the_machine_of_the_baseline(here: Path, tmp_path: Path) -> None:
    """Without git, the machine's cache has the older code."""
    archive = _archive(here, tmp_path)
    (archive / "pause.py").write_text(PAUSE.replace("0.004", "0.02"))
    status, said = perf(archive)

    assert status == 1
    assert CAUSE in said


@pytest.mark.slow
def test_an_archive_on_another_machine(here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same code is green. Other code is red, and says where it can be compared."""
    elsewhere(monkeypatch, tmp_path)
    archive = _archive(here, tmp_path)
    assert perf(archive, "--perf-update=new")[0] == 0
    (archive / "pause.py").write_text(PAUSE.replace("0.004", "0.02"))
    shutil.rmtree(tmp_path / "another cache" / "perfsuite" / "contents", ignore_errors=True)
    status, said = perf(archive)

    assert "this is no git repository that has its older content: measure in a clone" in said
    assert status == 1


def _archive(here: Path, folder: Path) -> Path:
    git(here, "archive", "--format=tar", "--prefix=archive/", "-o", str(folder / "archive.tar"), "HEAD")
    subprocess.run(["tar", "-xf", "archive.tar"], cwd=folder, check=True)
    shutil.copytree(here / "data", folder / "archive" / "data")
    return folder / "archive"


@pytest.mark.slow
def test_a_folder_of_a_monorepo(here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The script's folder is one of several, and it imports from another one."""
    mono = tmp_path / "mono"
    shutil.copytree(here, mono / "project", ignore=shutil.ignore_patterns(".git", "baselines"))
    (mono / "common").mkdir()
    (mono / "project" / "pause.py").rename(mono / "common" / "pause.py")
    (mono / "project" / "train.py").write_text(f"import sys\nsys.path.insert(0, '../common')\n{TRAIN}")
    git(mono, "init", "-q")
    commit(mono)
    record(mono / "project")
    slower(mono, "common/pause.py")
    elsewhere(monkeypatch, tmp_path)
    status, said = perf(mono / "project")

    assert status == 1
    assert CAUSE in said
    assert "(common/pause.py)" in said


@pytest.mark.slow
def test_a_submodule(here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own git has the older code."""
    library = tmp_path / "library"
    library.mkdir()
    (library / "pause.py").write_text(PAUSE)
    git(library, "init", "-q")
    commit(library)
    git(here, "rm", "-q", "pause.py")
    git(here, "submodule", "--quiet", "add", str(library), "library")
    (here / "train.py").write_text(f"import sys\nsys.path.insert(0, 'library')\n{TRAIN}")
    commit(here)
    record(here)
    slower(here / "library")
    commit(here)
    elsewhere(monkeypatch, tmp_path)
    status, said = perf(here)

    assert status == 1
    assert CAUSE in said
    assert "(library/pause.py)" in said
