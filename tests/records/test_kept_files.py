"""A file that several processes change loses nothing, and a process that is killed leaves nothing that git takes."""

import ast
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from perfsuite.features.nights.row import NightRow, read_month, write_months
from perfsuite.system import parts
from perfsuite.system.changing import changing

PERFSUITE = Path(parts.__file__).parents[1]
# Dies when the new content has been written, and has not got its name.
KILLED = """
import os, signal, sys
from pathlib import Path
from perfsuite.records.codec import write_bytes
os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
write_bytes(Path(sys.argv[1]), b"new")
"""
ADDS = """
import sys
from pathlib import Path
from perfsuite.features.nights.row import NightRow, write_months
print("ready", flush=True)
sys.stdin.readline()
cell = f"gpt2_tiny-single-cpu_x{sys.argv[2]}"
write_months([NightRow(date="2026-11-01T00:00:00Z", cell=cell, machine="m")], Path(sys.argv[1]))
"""
# What reads a file and writes it again: each holds its lock meanwhile.
CHANGES = (
    "baselines/ledger.py",
    "baselines/own_times.py",
    "cli/commands/init.py",
    "features/ladder/rung_evidence.py",
    "features/nights/news/webhook.py",
    "features/nights/row.py",
    "features/prove/commands/replay.py",
)


def test_rows_that_are_added_at_once_are_all_there(tmp_path):
    """Eight processes begin together."""
    started = [
        subprocess.Popen([sys.executable, "-c", ADDS, str(tmp_path), str(number)], stdin=-1, stdout=-1, text=True)
        for number in range(1, 9)
    ]
    for process in started:
        process.stdout.readline()
    for process in started:
        process.stdin.write("\n")
        process.stdin.flush()
    codes = [process.communicate()[0] or process.returncode for process in started]

    assert codes == [0] * 8
    assert len(read_month(tmp_path / "2026-11.jsonl")) == 8


def test_a_change_waits_for_the_one_before(tmp_path):
    """Another process cannot write while this one has read and not yet written."""
    (tmp_path / "2026-11.jsonl").write_bytes(b"")
    with changing(tmp_path / "2026-11.jsonl"):
        process = subprocess.Popen([sys.executable, "-c", ADDS, str(tmp_path), "1"], stdin=-1, stdout=-1, text=True)
        process.stdout.readline()
        process.stdin.write("\n")
        process.stdin.flush()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
        row = NightRow(date="2026-11-01T00:00:00Z", cell="gpt2_tiny-single-cpu_x2", machine="m")
        (tmp_path / "2026-11.jsonl").write_bytes(msgspec.json.encode(row) + b"\n")
    process.communicate()

    assert len(read_month(tmp_path / "2026-11.jsonl")) == 2


def test_git_takes_nothing_of_a_killed_writer_and_the_next_one_removes_it(tmp_path):
    """The file stays as it was."""
    kept = tmp_path / "2026-11.jsonl"
    write_months([NightRow(date="2026-11-01T00:00:00Z", cell="gpt2_tiny-single-cpu_x1", machine="m")], tmp_path)
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


@pytest.mark.parametrize("module", CHANGES)
def test_whoever_writes_what_it_read_has_a_lock(module):
    """None of the places that read a file and write it again works without the file's lock."""
    assert _changes(PERFSUITE / module)


def _changes(path: Path) -> bool:
    """Whether the module takes the lock of a file."""
    tree = ast.parse(path.read_text())
    return any(isinstance(node, ast.Call) and ast.unparse(node.func) == "changing" for node in ast.walk(tree))
