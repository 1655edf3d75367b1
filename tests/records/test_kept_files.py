"""A process that is killed while it writes a file leaves nothing that git takes."""

import subprocess
import sys
from pathlib import Path

from perfsuite.system import parts

PERFSUITE = Path(parts.__file__).parents[1]
# Dies when the new content has been written, and has not got its name.
KILLED = """
import os, signal, sys
from pathlib import Path
from perfsuite.records.codec import write_bytes
os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
write_bytes(Path(sys.argv[1]), b"new")
"""


def test_git_takes_nothing_of_a_killed_writer_and_the_next_one_removes_it(tmp_path):
    """The file stays as it was."""
    kept = tmp_path / "kept.jsonl"
    kept.write_bytes(b"old")
    before = kept.read_bytes()
    assert subprocess.run([sys.executable, "-c", KILLED, str(kept)], check=False).returncode == -9
    left = [path for path in tmp_path.iterdir() if path != kept]
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    added = subprocess.run(["git", "ls-files"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    assert kept.read_bytes() == before
    assert len(left) == 1
    assert added.split() == [kept.name]

    subprocess.run([sys.executable, "-c", KILLED.replace("os.replace =", "_ ="), str(kept)], check=True)

    assert kept.read_bytes() == b"new"
    assert {path.name for path in tmp_path.iterdir()} == {".git", kept.name}


def test_a_part_that_somebody_writes_is_left_alone(tmp_path):
    """Its lock says so."""
    with parts._part(tmp_path / "a") as part:
        subprocess.run([sys.executable, "-c", KILLED.replace("os.replace =", "_ ="), str(tmp_path / "b")], check=True)

        assert part.exists()
