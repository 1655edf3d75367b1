"""Starts a user's script by its own launcher, in a copy of its folder, as the rank server of its cell.

Each process of the command finds rank/script/attach on PYTHONPATH. One that trains writes its process id into the
cell's folder, and is a rank from then on.
"""

import contextlib
import dataclasses
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from perfsuite.catalog.cpu_kernels import VARIABLES, pinned
from perfsuite.catalog.definitions import Model
from perfsuite.catalog.scripts import assignments, words_of
from perfsuite.environments import git
from perfsuite.environments.training_python import training_python, variables_of
from perfsuite.errors import PerfsuiteError
from perfsuite.launch.hardware_here import most_ranks
from perfsuite.launch.programs import program
from perfsuite.launch.script_copy import ROOT, copy_folder, copy_neighbours, moved, place_below
from perfsuite.launch.script_ends import LOG, Ending, ended_later, write_failure
from perfsuite.launch.servers import NO_RECORDER, STACK_SECONDS, ServerKind, ask_for_stacks, last_lines
from perfsuite.rank.flags import OWN
from perfsuite.rank.script.boot import MOST_RANKS
from perfsuite.records.job import ATTACHED, PID
from perfsuite.records.measurement import COMMAND
from perfsuite.system import build_locks
from perfsuite.system.paths import EXTENSIONS, PACKAGE, code_folders
from perfsuite.system.processes import end_with_parent
from perfsuite.system.waits import wait_readable
from perfsuite.system.workspaces import Workspace

HOOK = PACKAGE / "rank" / "script" / "attach"
REPOSITORY = Path("$REPOSITORY")  # stands for the folder in a recorded command, which may lie elsewhere there
END_SECONDS = 10.0


class ScriptServer:
    """A server of one script; launch/servers.py has the protocol."""

    node = ""
    starts_command = True

    def __init__(self, kind: ServerKind) -> None:
        assert kind.script
        self.model, self.kind, self.environment = kind.script, kind, kind.environment
        if self.environment.python == sys.executable:
            python = training_python(Path(self.model.folder), tuple(assignments(self.model.command)[1]))
            self.environment = dataclasses.replace(self.environment, python=python)
        self._held = Workspace("script")
        self.workspace = self._held.folder
        self._process: subprocess.Popen[bytes] | None = None
        self._exit = -1
        self._pending: list[dict[str, Any]] = []
        self._ranks: dict[int, int] = {}  # pid by rank; a negative number is no process of this machine
        self._running: set[int] = set()
        self._wanted: list[int] = []
        self.folder = self.workspace
        self._folders = code_folders(self.workspace)

    def alive(self) -> bool:
        """Until it is closed: each request starts the command anew."""
        return self._held.lock >= 0

    def start(self, folder: Path, ranks: list[int]) -> None:
        """Start the command for a cell."""
        self.folder, self._wanted = folder, ranks
        self._ranks.clear()
        self._running.clear()
        self._pending.clear()
        for rank in self._wanted:
            (self.folder / f"rank{rank}.log").symlink_to(LOG)
        try:
            self._run()
        except (OSError, PerfsuiteError) as error:
            self._pending = [{"error": str(error), "explained": True}]

    def _run(self) -> None:
        top = self._top()
        root, own = self.folder / ROOT, self._own(top)
        copy = place_below(root, own)
        copy_folder(top, copy)
        copy_neighbours(root, own)
        here = copy / Path(self.model.folder).resolve().relative_to(top.resolve())
        command = words_of(self._model(top), len(self._wanted), free_port())
        assigned, words = assignments(moved(command, top, copy))
        with (self.folder / LOG).open("wb") as log:
            self._process = subprocess.Popen(
                program(words, [here, Path(self.model.folder)], self.environment.python),
                cwd=here,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._variables(top, copy, assigned),
                pass_fds=[self._held.lock],
                start_new_session=True,
                preexec_fn=lambda: end_with_parent(signal.SIGTERM),  # a launcher then ends what it started
            )
        if self._exit >= 0:
            os.close(self._exit)
        self._exit = os.pidfd_open(self._process.pid)

    def _top(self) -> Path:
        """The root of the repository that has the script, or of its copy in which this side runs."""
        root, folder = Path(self.environment.root).resolve(), Path(self.model.folder).resolve()
        return root if self.environment.root and folder.is_relative_to(root) else git.repository_of(folder)

    def _own(self, top: Path) -> Path:
        """The user's folder, of which this side may have other content elsewhere."""
        if not self.environment.folder:
            return top.resolve()
        levels = len(Path(self.environment.folder).relative_to(self.environment.root).parts)
        return [here := Path.cwd().resolve(), *here.parents][levels]

    def _model(self, top: Path) -> Model:
        """The script, with the command of its baseline if a trial reverts that."""
        line = dict(self.environment.overrides).get(COMMAND)
        words = tuple(moved(shlex.split(line), REPOSITORY, top)) if line else self.model.command
        return dataclasses.replace(self.model, command=words)

    def _variables(self, top: Path, copy: Path, assigned: Sequence[tuple[str, str]]) -> dict[str, str]:
        environment = dataclasses.replace(self.environment, overrides=(*self.environment.overrides, *assigned))
        variables = environment.variables()
        path = os.pathsep.join(moved(variables.get("PYTHONPATH", "").split(os.pathsep), top, copy))
        ours = {
            "PERFSUITE_SCRIPT": str(self.folder),
            "PERFSUITE_HOME": str(PACKAGE),
            "PERFSUITE_PYTHON": sys.executable,
            "PERFSUITE_COPY": f"{copy}{os.pathsep}{top}",
            "PERFSUITE_ROOT": str(self.folder / ROOT),
            "PYTHONPATH": os.pathsep.join(filter(None, [str(HOOK), path])),
            "PATH": os.pathsep.join([str(Path(self.environment.python).parent), os.environ.get("PATH", os.defpath)]),
            "PYTHONUNBUFFERED": "1",
            **variables_of(self.environment.python),
            **self._folders,
            **NO_RECORDER,
        }
        if "PYTHONHASHSEED" not in variables:  # else each launch goes through a set of names in another order
            ours["PYTHONHASHSEED"] = "0"
        if self.kind.device == "cpu":
            variables = pinned(variables, self.kind.kernels)
            ours |= {"CUDA_VISIBLE_DEVICES": "", "DS_ACCELERATOR": "cpu", "GLOO_SOCKET_IFNAME": "lo"}
            ours[MOST_RANKS] = str(most_ranks())
            if self.model.launcher == "accelerate launch":  # as its --cpu does; else each rank trains alone
                ours["ACCELERATE_USE_CPU"] = "true"
            ours |= {} if "OMP_NUM_THREADS" in variables else {"OMP_NUM_THREADS": "1"}  # like torchrun
        elif self.kind.visible:
            ours |= {"CUDA_VISIBLE_DEVICES": self.kind.visible, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        variables[COMMAND] = shlex.join(moved(self._model(top).command, top, REPOSITORY))
        return {**variables, **ours, OWN: " ".join([*ours, *VARIABLES])}

    def receive(self, seconds: float) -> list[dict[str, Any]]:
        """What has happened: ranks that began to train, and those that have ended."""
        if self._pending:
            messages, self._pending = self._pending, []
            return messages
        assert self._process
        if not self._running:
            return self._begun(seconds)
        status = self._process.poll()
        over = status is not None
        ended = []
        for rank in sorted(self._running):
            done = (self.folder / f"rank{rank}.json").exists()
            failed = (self.folder / f"rank{rank}.failure.json").exists()
            if status is not None and not done and not failed:
                done = ended_later(self.folder, rank, status)
            if over or ((done or failed) and not self._lives(rank)):
                self._running.discard(rank)
                if status is not None and not done and not failed:
                    write_failure(self.folder, rank, status)
                ended.append({"ended": self._ranks[rank], "status": 0 if done else 1 << 8})
        return ended

    def _lives(self, rank: int) -> bool:
        import psutil  # it knows neither macOS nor Windows

        return self._ranks[rank] > 0 and psutil.pid_exists(self._ranks[rank])

    def _begun(self, seconds: float) -> list[dict[str, Any]]:
        """Whether all ranks train. A rank of another number is another world size, which the rank itself reports."""
        assert self._process
        over = wait_readable([self], seconds)
        for rank in self._wanted:
            pid = self.folder / PID.format(rank=rank)
            if pid.exists():
                number, host = pid.read_text().split()
                self._ranks[rank] = int(number) if host == socket.gethostname() else -1 - rank
        failed = any((self.folder / f"rank{rank}.failure.json").exists() for rank in self._wanted)
        if len(self._ranks) == len(self._wanted) or failed:
            self._ranks |= {rank: -1 - rank for rank in self._wanted if rank not in self._ranks}  # they never came
            self._running = set(self._ranks)
            return [{"started": [self._ranks[rank] for rank in self._wanted]}]
        if over:
            return [{"error": self._why_no_step(), "explained": True}]
        return []

    def _why_no_step(self) -> str:
        """Why the command has ended without a rank that trains."""
        assert self._process
        ending = Ending(self.folder, self._process.wait(), self.environment.python)
        if self._ranks:
            missing = [rank for rank in self._wanted if rank not in self._ranks]
            return f"The command {ending.how}, and rank {missing[0]} has made no optimizer step."
        return ending.why_no_step(in_background=any(self._daemons()))

    def fileno(self) -> int:
        """Readable when the command has ended."""
        return self._exit

    def mirror(self, folder: Path) -> None:
        """The cell's folder is this machine's."""

    def ask_for_stacks(self, pids: Iterable[int]) -> None:
        """Let ranks write their Python stacks into the log."""
        ask_for_stacks(pid for pid in pids if pid > 0)

    def why_not_ready(self) -> str:
        attached = list(self.folder.glob(ATTACHED.format(pid="*")))
        if not attached:
            return "No process of the command has imported torch"
        youngest = max(attached, key=lambda file: file.stat().st_mtime_ns)  # a launcher imports torch before its ranks
        self.ask_for_stacks([int(youngest.suffix[1:])])
        time.sleep(STACK_SECONDS)
        missing = [rank for rank in self._wanted if rank not in self._ranks]
        who = f"Rank {missing[0]}" if self._ranks else "The command"
        return f"{who} has made no optimizer step"

    def tail(self) -> str:
        """The last lines of the command."""
        return last_lines(self.folder / LOG)

    def end(self, pids: Sequence[int]) -> None:
        """End the command with all that it started, which may lie in sessions of their own."""
        import psutil

        if self._process is None:
            return
        family = {pid for pid in (*pids, *self._ranks.values(), self._process.pid, *self._daemons()) if pid > 0}
        for pid in list(family):
            with contextlib.suppress(psutil.Error):
                family |= {child.pid for child in psutil.Process(pid).children(recursive=True)}
        locks = build_locks.held(Path(self._folders[EXTENSIONS]), family)
        for pid in family:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        deadline = time.monotonic() + END_SECONDS
        while any(map(psutil.pid_exists, family)) and time.monotonic() < deadline:
            time.sleep(0.01)
        build_locks.release(locks)
        shutil.rmtree(self.folder / ROOT, ignore_errors=True)

    def _daemons(self) -> Iterator[int]:
        """What the command has started, whoever its parent is by now."""
        import psutil

        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("PERFSUITE_SCRIPT") == str(self.folder):
                    yield process.pid

    def close(self) -> None:
        """End what runs, and remove the workspace."""
        if self.alive():
            self.end([])
            if self._exit >= 0:
                os.close(self._exit)
                self._exit = -1
            self._held.close()


def free_port() -> int:
    """A port of this machine that nobody uses."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port
