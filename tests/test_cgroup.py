"""Whether memory ran out is counted by the cgroup, not guessed from a SIGKILL."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from perfsuite.launch.cgroup import CGROUPS, oom_kills, why_killed

EATER = "import os; x = [b'x' * 2**20 for _ in range(400)]"


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


def test_a_real_one(tmp_path: Path) -> None:
    """A process in a group of 64 MiB is killed, and its group counts it."""
    folder = CGROUPS / f"perfsuite-test-{os.getpid()}"
    made = [folder, CGROUPS / "memory" / folder.name]
    place = next((one for one in made if _make(one)), None)
    if place is None:
        pytest.skip("no cgroup with a memory limit can be made here")
    try:
        join = f"open('{place}/cgroup.procs', 'w').write('0'); {EATER}"
        done = subprocess.run([sys.executable, "-c", join], check=False)
        membership = tmp_path / "membership"
        membership.write_text(f"0::/{folder.name}\n" if place == folder else f"1:memory:/{folder.name}\n")

        assert done.returncode == -9
        assert oom_kills(membership) == 1
    finally:
        with contextlib.suppress(OSError):
            place.rmdir()


def _make(folder: Path) -> bool:
    """Whether a group with a limit could be made there."""
    try:
        folder.mkdir()
        for name in ("memory.max", "memory.limit_in_bytes"):
            if (folder / name).exists():
                (folder / name).write_text(str(64 * 2**20))
                for swap in ("memory.swap.max", "memory.memsw.limit_in_bytes"):
                    with contextlib.suppress(OSError):
                        (folder / swap).write_text("0" if swap.endswith("max") else str(64 * 2**20))
                return True
        folder.rmdir()
    except OSError:
        with contextlib.suppress(OSError):
            folder.rmdir()
    return False
