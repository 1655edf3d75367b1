"""How ``perfsuite emulate`` ends: by signals, by an unknown call, or killed; and what is left. It runs no stand-ins."""

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from perfsuite.errors import UsageError
from perfsuite.features.emulation import compile as build
from perfsuite.features.emulation.installed import Torch

# `perfsuite emulate` of a command of Python, over nothing.
EMULATE = """
import sys
from pathlib import Path
from perfsuite.cli.main import main as cli
from perfsuite.features.emulation import running
running.refuse_real_gpus = lambda: None
running.installed_torch = running.stand_ins = lambda *_: None
running.variables = lambda emulation, libraries, shared, others: {**others, "SHARED": str(shared)}
running.MEMORY = Path(sys.argv[1])
sys.exit(cli(["emulate", "--", sys.executable, "-c", sys.argv[2]]))
"""
# Its exit code is the number of SIGINTs that it gets within half a second after the first.
COUNTS = """
import os, signal, sys, time
got = []
signal.signal(signal.SIGINT, lambda *_: got.append(1))
print(os.getpid(), flush=True)
while not got: time.sleep(0.01)
time.sleep(0.5)
sys.exit(len(got))
"""


def emulate(folder: Path, code: str, **options) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", EMULATE, str(folder), code]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def shared(folder: Path) -> list[Path]:
    """The folders of emulations, those in use and those that are left."""
    return list(folder.glob("perfsuite-*/work/*/emulation-*"))


def test_a_ctrl_c_of_the_terminal_reaches_the_command_once(tmp_path):
    """The kernel sends it to both processes, so it is not passed on."""
    ours, theirs = os.openpty()

    words = [sys.executable, "-c", EMULATE, str(tmp_path), COUNTS]
    process = subprocess.Popen(words, preexec_fn=lambda: os.login_tty(theirs))
    os.close(theirs)  # so that reading fails when the process has ended
    said = b""
    while not said.strip().splitlines() or not said.strip().splitlines()[-1].isdigit():
        assert select.select([ours], [], [], 60)[0], said.decode()
        said += os.read(ours, 1000)
    os.write(ours, b"\x03")

    assert process.wait(60) == 1
    assert shared(tmp_path) == []


def test_a_sigint_of_another_process_is_passed_on(tmp_path):
    process = emulate(tmp_path, COUNTS)
    process.stdout.readline()
    process.send_signal(signal.SIGINT)

    assert process.wait(60) == 1


def test_a_killed_emulation_ends_its_command(tmp_path):
    """With SIGTERM."""
    process = emulate(tmp_path, "import os, time; print(os.getpid(), flush=True); time.sleep(60)")
    command = int(process.stdout.readline())
    process.kill()
    process.wait()
    until = time.monotonic() + 30
    while is_running(command) and time.monotonic() < until:
        time.sleep(0.01)

    assert not is_running(command)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_later_start_removes_the_folder_of_a_killed_emulation(tmp_path):
    """And not the folder of one that runs."""
    wait = "import os, sys; print(os.environ['SHARED'], flush=True); sys.stdin.read()"
    killed, runs = (emulate(tmp_path, wait, stdin=subprocess.PIPE) for _ in range(2))
    left, used = Path(killed.stdout.readline().strip()), Path(runs.stdout.readline().strip())
    killed.kill()
    killed.wait()
    assert sorted(shared(tmp_path)) == sorted([left, used])
    killed.stdin.close()
    killed.stdout.read()  # its command ends
    emulate(tmp_path, "").wait(60)

    assert shared(tmp_path) == [used]
    runs.stdin.close()
    assert runs.wait(60) == 0
    assert shared(tmp_path) == []


def test_a_sentence_that_was_captured_is_printed_once_at_the_end(tmp_path):
    """Two processes left it, and their stderr was another file."""
    leave = "import os; open(os.environ['SHARED'] + '/ended', 'a').write('1 2 perfsuite emulate: f is unknown.\\n' * 2)"
    _, said = emulate(tmp_path, leave).communicate(timeout=60)

    assert said.splitlines()[1:] == ["perfsuite emulate: f is unknown."]


def test_an_interrupted_build_ends_its_compilers(tmp_path, monkeypatch):
    """At once, with all processes that they started."""
    fake, started = tmp_path / "python", tmp_path / "started"
    fake.write_text(f"#!/bin/sh\nsleep 60 &\necho $! > {started}.part; mv {started}.part {started}; wait\n")
    fake.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(fake))

    def interrupt(number, frame):
        if started.exists():
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
    try:
        with pytest.raises(KeyboardInterrupt):
            build._build_apart(Torch(tmp_path, "2.13.0", tmp_path), tmp_path / "made")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    time.sleep(0.1)

    assert not is_running(int(started.read_text()))


def test_a_build_says_what_it_does_and_why_it_failed(tmp_path, monkeypatch, capsys):
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\necho g++ failed >&2; exit 1\n")
    fake.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(fake))

    with pytest.raises(UsageError, match=r"^g\+\+ failed$"):
        build._build_apart(Torch(tmp_path, "2.13.0", tmp_path), tmp_path / "made")
    assert "compiling the stand-ins for torch 2.13.0: about a minute, once." in capsys.readouterr().err
