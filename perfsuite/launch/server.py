"""The warm rank server: imports torch, transformers and an engine's libraries once, then forks a rank in milliseconds.

    python -m perfsuite.launch.server cpu|cuda WORKSPACE LOCK   (the socket is its standard input)

It reads one JSON line per request, a ``records/job.py: Start``, and writes one per event:

    ← {"folder": FOLDER, "ranks": [N, …]}, where FOLDER has the job
    → {"preparing": NAME} and {"prepared": NAME}, around everything that may build an extension, and then
    → {"started": [pid, …]}  or  {"error": text}
    → {"ended": pid, "status": wait status}

multiprocessing's forkserver has three problems: it imports the parent's main module (pytest) into every rank, it
ignores a preload that fails, and its children share one process group.

The server never touches CUDA: its children could not use it then. Libraries do touch it when they are imported (torchao
asks for the device's capability, and transformers' models import torchao) and built. So on CUDA each rank imports and
builds for itself, which costs some seconds per cell. When the server's parent dies, for whatever reason, the server
ends all ranks and itself, and removes the working folder.
"""

import contextlib
import functools
import gc
import importlib
import json
import os
import selectors
import shutil
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from perfsuite.records import codec
from perfsuite.records.job import JOB, Job, Start
from perfsuite.system.processes import end_with_parent, ended_with


class Server:
    """One per device kind; ``workspace`` is removed when the server ends."""

    def __init__(self, connection: socket.socket, workspace: Path, device: str) -> None:
        self.connection = connection
        self.device = device
        self.workspace = workspace
        self.ranks: set[int] = set()
        self.prepared: set[Any] = set()

    def serve(self) -> None:
        """Answer requests until the parent closes the connection or dies."""
        wakeup_read, wakeup_write = os.pipe()
        os.set_blocking(wakeup_write, False)
        os.set_blocking(wakeup_read, False)
        signal.set_wakeup_fd(wakeup_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        selector = selectors.DefaultSelector()
        selector.register(self.connection, selectors.EVENT_READ)
        selector.register(wakeup_read, selectors.EVENT_READ)
        pending = b""
        while True:
            for key, _ in selector.select():
                if key.fd == wakeup_read:
                    os.read(wakeup_read, 4096)
                    self.reap()
                    continue
                data = self.connection.recv(65536)
                if not data:
                    return
                *lines, pending = (pending + data).split(b"\n")
                for line in lines:
                    self.answer(msgspec.json.decode(line, type=Start))

    def answer(self, request: Start) -> None:
        """Start the ranks of one cell."""
        folder = Path(request.folder)
        gc.disable()
        try:
            job = codec.read(folder / JOB, Job)
            sys.path += [entry for entry in job.import_path if entry not in sys.path]
            if self.device == "cpu":
                with ended_with(self.connection):
                    warm_up(job, self.prepared, self.send)
        except Exception as error:
            self.send({"error": f"{type(error).__name__}: {error}"})
            return
        finally:
            gc.enable()
        gc.freeze()  # ranks collect cycles many times: imported objects need not be traversed, nor copied, again
        self.send({"started": [self.fork(folder, job, rank) for rank in request.ranks]})

    def fork(self, folder: Path, job: Job, rank: int) -> int:
        """Fork one rank; its output goes to a file in the folder."""
        parent = os.getpid()
        pid = os.fork()
        if pid:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.setpgid(pid, pid)
            self.ranks.add(pid)
            return pid
        status = 70
        try:
            os.setpgid(0, 0)  # a rank and all processes that it starts can be ended together
            end_with_parent()
            if os.getppid() != parent:
                os._exit(status)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            self.connection.close()
            log = os.open(folder / f"rank{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # it was the socket
            os.dup2(log, 1)
            os.dup2(log, 2)
            from perfsuite.rank.main import run

            here = functools.partial(warm_up, job, set(), lambda _: None)
            status = run(folder, rank, None if self.device == "cpu" else here)
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(status)

    def reap(self) -> None:
        """Report every rank that has ended to the parent. Those that a signal killed come first: the kernel does not
        report in which order children died, and a killed rank did not die of another's death.
        """
        ended = []
        for pid in list(self.ranks):
            reaped, status = os.waitpid(pid, os.WNOHANG)
            if reaped:
                self.ranks.remove(pid)
                ended.append((not os.WIFSIGNALED(status), pid, status))
        for _, pid, status in sorted(ended):
            self.send({"ended": pid, "status": status})

    def send(self, message: dict[str, Any]) -> None:
        self.connection.sendall(json.dumps(message).encode() + b"\n")

    def close(self) -> None:
        """End every rank and remove the working folder."""
        for pid in self.ranks:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
        shutil.rmtree(self.workspace, ignore_errors=True)


def warm_up(job: Job, prepared: set[Any], tell: Callable[[dict[str, Any]], None]) -> None:
    """Import what a cell is about to need, and do what is not ``prepared`` yet."""
    from perfsuite.catalog.registry import Catalog
    from perfsuite.catalog.strategies import parse_strategy

    catalog = Catalog(tuple(Path(folder) for folder in job.catalogs))
    strategy = parse_strategy(job.strategy, catalog)
    parts: list[Any] = [strategy.engine, *(choice.technique for choice in strategy.choices)]
    modules = [name for part in parts for name in part.preload]
    if strategy.engine.process != "inference":
        modules.append("torch._dynamo")  # 800 modules, which optimizers and collectives would import in each rank
    for module in modules:
        with contextlib.suppress(Exception):  # the rank that needs it fails alike, and says for what
            importlib.import_module(module)
    if job.model.model_class:
        import transformers

        getattr(transformers, job.model.model_class, None)  # importing its module is the slow part
    for part in parts:
        if part.prepare and part.prepare not in prepared:
            tell({"preparing": part.name})
            part.prepare()
            prepared.add(part.prepare)
            tell({"prepared": part.name})


def import_all(device: str) -> None:
    """What every rank needs, and compile it, if it is missing."""
    import torch
    import transformers  # noqa: F401

    import perfsuite.rank.main  # noqa: F401
    from perfsuite.rank.installed import known

    with contextlib.suppress(Exception):  # evidence only, which every rank would read otherwise
        known()
    if device == "cpu":
        import torch.utils.flop_counter  # noqa: F401

        from perfsuite.catalog.registry import Catalog
        from perfsuite.rank.memory.cpu_allocator import built

        built()
        list(Catalog().modules("metric"))  # perfsuite's own, which every rank would import otherwise


def main() -> None:
    """Import the heavy libraries, then serve on standard input."""
    device, workspace = sys.argv[1], Path(sys.argv[2])
    os.set_inheritable(int(sys.argv[3]), False)  # ranks hold the workspace's lock, but not what they start
    connection = socket.socket(fileno=os.dup(0))
    server = Server(connection, workspace, device)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    gc.disable()  # modules stay: traversing them repeatedly takes a quarter of the import time
    try:
        with ended_with(connection):
            import_all(device)
        gc.enable()
        server.serve()
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        if isinstance(error, ModuleNotFoundError):
            text = f"{error.name} is not installed: pip install 'perfsuite[suite]'"
        with contextlib.suppress(OSError):
            server.send({"error": text})
            while connection.recv(4096):  # the parent reads this process' log before it closes the connection
                pass
    finally:
        server.close()


if __name__ == "__main__":
    main()
