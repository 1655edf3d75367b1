"""How a process of a script ends once it is a rank: its sample names the user's files, and no child is left behind."""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from perfsuite.rank.script.boot import started_with
from perfsuite.rank.script.family import descendants
from perfsuite.rank.script.read_files import read_in
from perfsuite.records.sample import RankSample

END_SECONDS = 60.0  # for the other ranks to be done, too


def completed(sample: RankSample, observed: dict[str, Any]) -> RankSample:
    """The sample with the files of the user, of which the script has copies, and with what probes have observed."""
    read = read_in(*map(Path, _folders())) if sample.rank == 0 else []  # by any process, once for all ranks
    return msgspec.structs.replace(
        sample,
        files=[_original(file) for file in sample.files],
        opened=[*map(_original, sample.opened), *read],
        looked_for=[_original(place) for place in sample.looked_for],
        observed=observed,
    )


def _folders() -> tuple[str, str]:
    """The one in which the script runs, and the user's, of which it is a copy."""
    copy, _, original = started_with["PERFSUITE_COPY"].partition(os.pathsep)
    return copy, original


def _original(file: str) -> str:
    """The user's file, of which the script has a copy."""
    copy, original = _folders()
    if file.startswith(f"{copy}/"):
        return original + file.removeprefix(copy)
    return file.removeprefix(root) if file.startswith(f"{(root := started_with['PERFSUITE_ROOT'])}/") else file


def wait_for(files: Sequence[Path]) -> None:
    """Until the other ranks are done: they may still need this one."""
    deadline = time.monotonic() + END_SECONDS
    while not all(file.exists() for file in files) and time.monotonic() < deadline:
        time.sleep(0.01)


def leave(status: int) -> None:
    """End this process and its children, whatever the script would do at its end. Later, they would be nobody's."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # it may be None, or closed
            stream.flush()
    for child in descendants():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(child, signal.SIGKILL)
    os._exit(status)
