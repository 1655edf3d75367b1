"""Runs a command, and ends it with everything that it started when a limit of time (system/deadline.py) is used up."""

import contextlib
import math
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence

from perfsuite.errors import UsageError
from perfsuite.system.deadline import check, left, look

FRAMES = str.maketrans("", "", "×╰─▶│├")  # uv draws its reasons as a tree


def run(command: Sequence[str], variables: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """The finished command with its output, whatever its exit code. Raises OutOfTime, and OSError if it cannot run.

    Under a limit it has a session of its own, so no process of it is missed. Without one it keeps the terminal, where
    git may ask for a password.
    """
    check()
    own = math.isfinite(left())
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdout=pipe, stderr=pipe, text=True, env=variables, start_new_session=own
    ) as process:
        try:
            while True:
                wait = look()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    out, err = process.communicate(timeout=wait if math.isfinite(wait) else None)
                    return subprocess.CompletedProcess(command, process.returncode, out, err)
                check()
        except BaseException:  # Ctrl-C, too
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if own:
                    os.killpg(process.pid, signal.SIGKILL)
                else:
                    process.kill()
            raise


def output(command: Sequence[str], variables: Mapping[str, str] | None = None) -> str:
    """The command's output. Raises UsageError with its message, in one line, if it fails."""
    try:
        done = run(command, variables)
    except OSError as error:
        raise UsageError(f"{command[0]} cannot run: {error.strerror}.") from error
    if done.returncode:
        said = " ".join(done.stderr.translate(FRAMES).split())
        raise UsageError(f"{' '.join(command[:3])} … failed: {said or f'exit code {done.returncode}'}")
    return done.stdout
