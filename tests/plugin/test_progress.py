"""Progress: a rank writes a few bytes, the parent reads them whenever it likes, whatever became of the rank."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from perfsuite.records.progress import PHASES, Progress, ProgressWriter, read_progress


def test_marks_and_steps_are_counted(tmp_path: Path) -> None:
    """Every phase is a mark; "batch" begins a step."""
    writer = ProgressWriter(tmp_path / "progress")
    seen = []
    for phase in ("join", "build", "batch", "forward", "batch"):
        writer.mark(phase)
        seen.append(read_progress(tmp_path / "progress"))

    assert seen == [
        Progress(1, 0, "join"),
        Progress(2, 0, "build"),
        Progress(3, 1, "batch"),
        Progress(4, 1, "forward"),
        Progress(5, 2, "batch"),
    ]


def test_a_wait_is_no_mark(tmp_path: Path) -> None:
    """It shows that the rank lives, and leaves the marks by which a hang is blamed."""
    writer = ProgressWriter(tmp_path / "progress")
    writer.mark("end")
    for _ in range(2):
        writer.wait("turn")

    assert read_progress(tmp_path / "progress") == Progress(1, 0, "turn", 2)


@pytest.mark.parametrize("phase", PHASES)
def test_every_phase(tmp_path: Path, phase: str) -> None:
    """The phase that is read is the phase that was written."""
    ProgressWriter(tmp_path / "progress").mark(phase)

    assert read_progress(tmp_path / "progress").phase == phase


@pytest.mark.parametrize("content", [None, b"", b"\1", b"\1" * 23])
def test_no_file_yet(tmp_path: Path, content: bytes | None) -> None:
    """A rank whose file is missing or not yet whole is at mark 0."""
    if content is not None:
        (tmp_path / "progress").write_bytes(content)

    assert read_progress(tmp_path / "progress") == Progress(0, 0, "start")


def test_a_new_writer_begins_at_zero(tmp_path: Path) -> None:
    """A writer forgets what an earlier one left in its file."""
    ProgressWriter(tmp_path / "progress").mark("end")
    ProgressWriter(tmp_path / "progress")

    assert read_progress(tmp_path / "progress") == Progress(0, 0, "start")


def test_a_killed_rank_leaves_its_last_mark(tmp_path: Path) -> None:
    """The last mark outlives a rank that SIGKILL ends at once."""
    code = (
        "import os, pathlib, sys; from perfsuite.records.progress import ProgressWriter;"
        "writer = ProgressWriter(pathlib.Path(sys.argv[1])); writer.mark('batch'); writer.mark('backward');"
        "os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "progress")], check=False)

    assert done.returncode == -signal.SIGKILL
    assert read_progress(tmp_path / "progress") == Progress(2, 1, "backward")


def test_a_mark_is_cheap(tmp_path: Path) -> None:
    """A mark takes next to no time, so that it may stand inside a timed step."""
    writer = ProgressWriter(tmp_path / "progress")
    before = os.times()
    for _ in range(20_000):
        writer.mark("batch")
    after = os.times()

    assert read_progress(tmp_path / "progress").marks == 20_000
    assert after.user + after.system - before.user - before.system < 2  # 100 µs a mark, on whatever machine
