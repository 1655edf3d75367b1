"""What a run leaves in its folders when it is killed, and that the next start removes it, and nothing else."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from perfsuite.cli.main import INTERRUPTED
from perfsuite.system.paths import temporary_folder
from perfsuite.system.workspaces import LOCK, Workspace

STRANGER = 4242  # a user that is not this one
CELL = "gpt2_tiny-ddp-cpu_x2"
TEST = f"""
import pytest

@pytest.mark.perf_cell({CELL!r})
def test_cell(perf_cell):
    perf_cell.check()
"""
# Holds a workspace, and starts a process that holds it too.
HOLD = """
import subprocess, sys, time
from perfsuite.system.workspaces import Workspace
held = Workspace("server")
other = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], pass_fds=[held.lock], stdin=-1)
print(held.folder, flush=True)
time.sleep(600)
"""
# A rank server whose imports last as long as this test may.
SLOW = """
import sys, time
from perfsuite.environments.environments import Environment
from perfsuite.launch.servers import LocalServer, ServerKind
server = LocalServer(ServerKind("cpu", "", Environment(sys.executable, (sys.argv[1],)), ""))
print(server._process.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary files of this test alone."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    return tmp_path / "tmp"


@pytest.fixture
def place(temporary: Path) -> Iterator[Path]:
    """Where workspaces are made, with one that is in use."""
    with Workspace("used") as used:
        yield used.parent


def wait_until(condition: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def commands(temporary: Path) -> dict[int, str]:
    """The command lines of the living processes whose temporary files are there, by pid."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            variables = (process / "environ").read_bytes().split(b"\0")
            alive = (process / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
            named = next((Path(os.fsdecode(one[7:])) for one in variables if one.startswith(b"TMPDIR=")), Path())
            theirs = named.resolve().is_relative_to(temporary)  # a long name has a short link
            if alive and theirs and int(process.name) != os.getpid():
                found[int(process.name)] = (process / "cmdline").read_text().replace("\0", " ")
        except OSError:
            continue
    return found


def run(folder: Path, *options: str) -> "subprocess.Popen[bytes]":
    """pytest over the cell there."""
    (folder / "test_it.py").write_text(TEST)
    (folder / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "--perf", "-p", "no:cacheprovider", *options]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)


def files(folder: Path) -> list[Path]:
    """All that lies there, other than locks and empty folders."""
    return [one for one in folder.rglob("*") if not one.is_dir() and "lock" not in one.name]


def test_what_is_left_of_a_killed_run_is_removed_by_the_next(tmp_path: Path, temporary: Path) -> None:
    """SIGKILL of pytest and of its rank server at once. The ranks end by themselves; the folder stays, since nobody is
    left to remove it. The next run makes a workspace, and nothing of the folder is there.
    """
    first = run(tmp_path, "--perf-steps=100000")
    try:
        wait_until(lambda: list(temporary.rglob("rank1.progress")))
        ranks_too = [pid for pid, said in commands(temporary).items() if "launch.server" in said]
        servers = [pid for pid in ranks_too if os.getsid(pid) == pid]
        first.send_signal(signal.SIGSTOP)  # so that it does not end the ranks of a dead server
        for pid in servers:
            os.kill(pid, signal.SIGKILL)
    finally:
        first.kill()
        first.wait()
    wait_until(lambda: not commands(temporary), 10)
    left = [one.name for one in files(temporary)]

    def swept() -> bool:
        Workspace("server").close()
        return files(temporary) == []

    assert len(servers) == 1 and "rank1.progress" in left
    wait_until(swept, 10)  # a process that ends loses its variables before its locks


SCRIPT = """
import torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters())
while True:
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
"""


@pytest.mark.parametrize("command", ["pytest", "perfsuite"])
def test_sigterm_leaves_nothing(command: str, tmp_path: Path, temporary: Path) -> None:
    """It ends a run as Ctrl-C does, as a cancelled job of CI would be."""
    if command == "pytest":
        first = run(tmp_path, "--perf-steps=100000")
    else:
        (tmp_path / "train.py").write_text(SCRIPT)
        words = [
            sys.executable,
            "-m",
            "perfsuite.cli.main",
            "run",
            "--steps",
            "100000",
            "--",
            sys.executable,
            "train.py",
        ]
        first = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: list(temporary.rglob("*.progress")))
        first.send_signal(signal.SIGTERM)
        first.wait(60)
    finally:
        first.kill()
        first.wait()
    wait_until(lambda: not commands(temporary), 10)

    assert first.returncode == (pytest.ExitCode.INTERRUPTED if command == "pytest" else INTERRUPTED)
    assert files(temporary) == []


def test_a_workspace_stays_as_long_as_anybody_works_in_it(temporary: Path) -> None:
    """Its maker is killed, and a process that it started lives on: a server that still ends its ranks."""
    first = subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True)
    try:
        assert first.stdout is not None
        held = Path(first.stdout.readline().strip())
        Workspace("next").close()
        kept = held.exists()
        [other] = [pid for pid in commands(temporary) if pid != first.pid]
        os.kill(other, signal.SIGSTOP)
    finally:
        first.kill()
        first.wait()
    Workspace("next").close()
    kept_then = held.exists()
    os.kill(other, signal.SIGKILL)
    wait_until(lambda: other not in commands(temporary))
    Workspace("next").close()

    assert kept and kept_then
    assert not held.exists()


def test_one_whose_maker_was_killed_before_it_had_a_lock_is_removed(place: Path) -> None:
    """And nothing that is in use."""
    (place / "server-x" / "cell-y").mkdir(parents=True)
    Workspace("next").close()

    assert [one.name.partition("-")[0] for one in place.iterdir() if one.is_dir()] == ["used"]


def test_what_is_no_workspace_is_not_removed(place: Path, tmp_path: Path) -> None:
    """A link to a folder elsewhere is not followed, and a file stays."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "precious").touch()
    (place / "server-link").symlink_to(tmp_path / "elsewhere")
    (place / "server-file").touch()
    Workspace("next").close()

    assert (tmp_path / "elsewhere" / "precious").exists()
    assert {"server-link", "server-file"} < {one.name for one in place.iterdir()}


def test_what_lies_elsewhere_is_not_removed(place: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing beside our own folder, whatever its name, and nothing of another machine that has the same files: its
    locks may not be seen here.
    """
    (temporary / "perfsuite-abc" / "cell-1").mkdir(parents=True)
    with monkeypatch.context() as other:
        other.setattr("platform.node", lambda: "other")
        theirs = Workspace("server")
    with theirs as there:
        (there / LOCK).unlink()  # as if it were not held
        Workspace("next").close()

        assert there.is_dir() and there.parent != place
    assert (temporary / "perfsuite-abc" / "cell-1").is_dir()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a folder of another user")
def test_what_another_user_has_is_not_removed(place: Path) -> None:
    """Neither in our folder, nor if ours is his."""
    (place / "server-his").mkdir()
    os.chown(place / "server-his", STRANGER, STRANGER)
    Workspace("next").close()
    os.chown(temporary_folder(), STRANGER, STRANGER)
    with Workspace("next") as elsewhere:
        assert not elsewhere.is_relative_to(place)
    os.chown(place.parents[1], 0, 0)

    assert (place / "server-his").is_dir()


def test_without_locks_nothing_is_removed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some file systems of clusters have none. Then nobody can say who is alive, and a run starts all the same."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError("Function not implemented")

    (place / "server-x").mkdir()
    monkeypatch.setattr("perfsuite.system.parts.lock", refuse)
    with Workspace("next") as there:
        assert there.is_dir()

    assert (place / "server-x").is_dir()


def test_a_server_whose_parent_died_ends_in_the_middle_of_its_imports(
    tmp_path: Path, temporary: Path, cold: None
) -> None:
    """Where it reads nothing for minutes; its folder is gone too."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "transformers.py").write_text(
        f"import pathlib, time\npathlib.Path({str(tmp_path / 'imports')!r}).touch()\ntime.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", SLOW, str(tmp_path / "site")], stdout=subprocess.PIPE, text=True)
    try:
        assert parent.stdout is not None
        server = int(parent.stdout.readline())
        wait_until((tmp_path / "imports").exists)
    finally:
        parent.kill()
        parent.wait()
    try:
        wait_until(lambda: server not in commands(temporary), 20)
    finally:
        if server in commands(temporary):
            os.kill(server, signal.SIGKILL)

    assert files(temporary) == []
