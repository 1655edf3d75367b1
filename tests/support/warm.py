"""What takes seconds to start stays warm for the whole session: rank servers here, tracing processes in warm_traces.py.

Tests of their start and their end start them in a process of their own.
"""

import hashlib
import itertools
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import msgspec
import pytest

from perfsuite.catalog.cell import Cell
from perfsuite.environments.environments import Environment
from perfsuite.launch import launcher, places, servers
from perfsuite.records.job import Job
from perfsuite.run.runner import Runner, _counted

# In each test, or in a pytest that a test runs in this process; no rank reads them.
UNLIKE = {"HOME", "USERPROFILE", "PY_COLORS", "PYTEST_CURRENT_TEST", "PYTEST_DEBUG_TEMPROOT", "PYTEST_VERSION"}
WARM_START = Path(__file__).parent / "warm_start" / "warm_start.py"


class QuickServer(servers.LocalServer):
    """A fork of a process that has imported torch; quick where no test compares."""

    code = (str(WARM_START), "perfsuite.launch.server")


def variables(*unread: str) -> str:
    """The environment variables of a new process, but for those that each test has of its own, and the unread ones."""
    return repr(sorted(item for item in os.environ.items() if item[0] not in {*UNLIKE, *unread}))


@pytest.fixture(scope="session", autouse=True)
def rank_servers() -> Iterator[None]:
    """Servers outlive their launcher: the next in the same environment need not import torch again, for seconds."""
    start, idle = QuickServer, defaultdict[str, list[servers.LocalServer]](list)
    homes: dict[servers.LocalServer, str] = {}

    def lend(kind: servers.ServerKind) -> servers.LocalServer:
        key = repr((kind, variables()))
        while idle[key]:
            if (server := idle[key].pop()).alive():
                return server
        server = start(kind)
        homes[server] = key
        return server

    def give_back(self: launcher.Launcher) -> None:
        for server in itertools.chain.from_iterable(self._servers.values()):
            if server in homes:
                idle[homes[server]].append(server)
            else:
                server.close()
        self._servers.clear()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(places, "LocalServer", lend)
        patch.setattr(launcher.Launcher, "close", give_back)
        yield
    for server in homes:
        server.close()


class KnownFlop(dict[Any, int]):
    """Model FLOPs that were counted in an environment, by what they depend on; workers share them by files."""

    def __init__(self, folder: Path, environment: Environment) -> None:
        super().__init__()
        self.folder, self.environment = folder, environment

    def file(self, key: Any) -> Path:
        return self.folder / hashlib.sha256(repr((self.environment, key)).encode()).hexdigest()

    def get(self, key: Any, default: Any = None) -> Any:
        if key not in self and (file := self.file(key)).exists():
            super().__setitem__(key, int(file.read_text()))
        return super().get(key, default)

    def __setitem__(self, key: Any, flop: int) -> None:
        super().__setitem__(key, flop)
        with NamedTemporaryFile("w", dir=self.folder, delete=False) as part:
            part.write(str(flop))
        Path(part.name).replace(self.file(key))  # whole or not at all: no lock is needed


@pytest.fixture(scope="session", autouse=True)
def counted_flop(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Model FLOPs that one runner has counted are known to all others in the same environment, those of other
    workers and with faults included. Counting takes as long as the steps. It builds a model of its own, so that only a
    fault that replaces a library's code would move it: a test of such a count must count for itself.
    """
    folder = tmp_path_factory.getbasetemp()
    folder = (folder.parent if hasattr(request.config, "workerinput") else folder) / "counted-flop"
    folder.mkdir(exist_ok=True)
    make, make_job, known = Runner.__init__, Runner.job, dict[Environment, KnownFlop]()

    def sharing(self: Runner, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        self.model_flop = known.setdefault(self._environment, KnownFlop(folder, self._environment))

    def job(self: Runner, cell: Cell) -> Job:
        made = make_job(self, cell)
        return msgspec.structs.replace(made, model_flop=self.model_flop.get(_counted(cell))) if cell.faults else made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Runner, "__init__", sharing)
        patch.setattr(Runner, "job", job)
        yield
