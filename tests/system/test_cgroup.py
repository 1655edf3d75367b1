"""Whether memory ran out is counted by the cgroup, not guessed from a SIGKILL."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from perfsuite.environments.environments import Environment
from perfsuite.launch.servers import LocalServer, ServerKind
from perfsuite.system.cgroup import CGROUPS, oom_kills, why_killed

pytestmark = pytest.mark.usefixtures("cold")
MIB = 2**20
LIMIT = 2048 * MIB  # of a group for pytest's part, a server and one rank, which need less than half
EATER = "import os; x = [b'x' * 2**20 for _ in range(400)]"
EATS = "x = [b'x' * 2**20 for _ in range(100_000)]"
# Faults of a rank, which is put into a cell.
EATERS = f"""
import os, signal, time
from pathlib import Path

def rank(session, trainer, meters):
    {EATS}

def server(session, trainer, meters):
    Path(f"/proc/{{os.getppid()}}/oom_score_adj").write_text("1000")  # the kernel's first choice
    {EATS}

def nobody(session, trainer, meters):
    os.kill(os.getpid(), signal.SIGKILL)
"""
# Joins the group, measures a cell and prints how it failed.
MEASURE = """
import sys
from pathlib import Path
group, folder, fault, *path = sys.argv[1:]
Path(group, "cgroup.procs").write_text("0")
from dataclasses import replace
from perfsuite.catalog.registry import Catalog
from perfsuite.catalog.cell import parse_cell
from perfsuite.environments.environments import Environment
from perfsuite.run.runner import Runner, Settings
catalog = Catalog()
runner = Runner(catalog, Settings(steps=1, warmup=0, import_path=(folder,)), Environment(sys.executable, tuple(path)))
cell = replace(parse_cell("gpt2_tiny-single-cpu_x1", catalog), faults=(fault,) if fault else ())
failure = runner.measure(cell).failure
runner.close()
print(failure.kind, failure.rank, failure.message)
"""


def group(tmp_path: Path, membership: str, file: str, text: str) -> int | None:
    """The count of that cgroup."""
    (tmp_path / "membership").write_text(membership)
    path = tmp_path / "root" / file
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return oom_kills(tmp_path / "membership", tmp_path / "root")


def test_version_two(tmp_path: Path) -> None:
    """memory.events of the group that the process is in."""
    assert group(tmp_path, "0::/user/job\n", "user/job/memory.events", "low 0\noom 5\noom_kill 3\n") == 3


def test_version_one(tmp_path: Path) -> None:
    """memory.oom_control of the memory controller."""
    text = "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"
    assert group(tmp_path, "5:cpu:/x\n4:memory:/job\n", "memory/job/memory.oom_control", text) == 2


@pytest.mark.parametrize("membership", ["", "nonsense", "0::/gone\n", "4:cpu:/x\n"])
def test_no_count_is_no_guess(tmp_path: Path, membership: str) -> None:
    """None, which is said."""
    assert group(tmp_path, membership, "elsewhere/memory.events", "oom_kill 3\n") is None
    assert why_killed(None, 1) == ", and no cgroup says whether memory ran out"


def test_the_counter_decides() -> None:
    """Rising or not."""
    assert why_killed(0, 1) == ": memory ran out, for the cgroup's oom_kill counter rose from 0 to 1"
    assert why_killed(1, 1) == ", not for memory: the cgroup's oom_kill counter did not rise"


@pytest.fixture
def limited() -> Iterator[Callable[[int], Path]]:
    """Makes a group with a limit of so many bytes, and without swap."""
    name = f"perfsuite-test-{os.getpid()}"
    made: list[Path] = []

    def make(limit: int) -> Path:
        for folder in (CGROUPS / name, CGROUPS / "memory" / name):
            if _make(folder, limit):
                made.append(folder)
                return folder
        pytest.skip("no cgroup with a memory limit can be made here")

    yield make
    for folder in made:
        deadline = time.monotonic() + 10
        while folder.exists() and time.monotonic() < deadline:  # the last process may still be leaving it
            with contextlib.suppress(OSError):
                folder.rmdir()
            time.sleep(0.01)


def test_a_real_one(tmp_path: Path, limited: Callable[[int], Path]) -> None:
    """A process in a group of 64 MiB is killed, and its group counts it."""
    place = limited(64 * MIB)
    join = f"open('{place}/cgroup.procs', 'w').write('0'); {EATER}"
    done = subprocess.run([sys.executable, "-c", join], check=False)
    membership = tmp_path / "membership"
    version_2 = place.parent == CGROUPS
    membership.write_text(f"0::/{place.name}\n" if version_2 else f"1:memory:/{place.name}\n")

    assert done.returncode == -9
    assert oom_kills(membership) == 1


@pytest.mark.parametrize(
    ("fault", "path", "said"),
    [
        (
            "eaters:rank",
            "",
            "killed 0 Rank 0 was killed by SIGKILL: memory ran out, for the cgroup's oom_kill counter rose ",
        ),
        pytest.param(
            "eaters:server",
            "",
            "raised None The rank server failed: it died by SIGKILL: memory ran out, for the cgroup's ",
            marks=pytest.mark.slow,
        ),
        (
            "",
            "imports",
            "raised None The rank server failed: it died by SIGKILL: memory ran out, for the cgroup's oom_kill ",
        ),
        pytest.param(
            "eaters:nobody",
            "",
            "killed 0 Rank 0 was killed by SIGKILL, not for memory: the cgroup's oom_kill counter did not ",
            marks=pytest.mark.slow,
        ),
    ],
    ids=["rank", "server beside its rank", "server in its imports", "killed by hand"],
)
def test_who_ran_out_of_memory_is_told(
    tmp_path: Path, limited: Callable[[int], Path], fault: str, path: str, said: str
) -> None:
    """A rank that eats memory; a server that the kernel chooses in its place; a server that eats it before it has
    ranks. Each in a real group, together with the process that measures.
    """
    (tmp_path / "eaters.py").write_text(EATERS)
    (tmp_path / "imports").mkdir()
    (tmp_path / "imports" / "transformers.py").write_text(EATS)
    command = [sys.executable, "-c", MEASURE, str(limited(LIMIT)), str(tmp_path), fault]
    done = subprocess.run([*command, *([str(tmp_path / path)] if path else [])], capture_output=True, text=True)

    assert done.stdout.startswith(said), done.stdout + done.stderr[-2000:]


def test_a_server_that_ends_after_its_connection_is_told(tmp_path: Path) -> None:
    """A killed process closes its files before it is gone: on a busy machine that takes a while."""
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\nexec 0<&-\nsleep 0.3\nkill -9 $$\n")
    script.chmod(0o700)
    server = LocalServer(ServerKind("cpu", "", Environment(str(script)), ""))
    said = server.receive(10)
    server.close()

    assert said[0]["error"].startswith("it died by SIGKILL")


def _make(folder: Path, limit: int) -> bool:
    """Whether a group with a limit could be made there."""
    try:
        folder.mkdir()
        for name in ("memory.max", "memory.limit_in_bytes"):
            if (folder / name).exists():
                (folder / name).write_text(str(limit))
                for swap in ("memory.swap.max", "memory.memsw.limit_in_bytes"):
                    with contextlib.suppress(OSError):
                        (folder / swap).write_text("0" if swap.endswith("max") else str(limit))
                return True
        folder.rmdir()
    except OSError:
        with contextlib.suppress(OSError):
            folder.rmdir()
    return False
