"""Cells on two nodes that torchrun starts: two network namespaces of this machine, with a wire between them."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from test_cluster import CATALOG, PAIRS, assert_equal

from conftest import SETTINGS, Measure
from perfsuite.catalog.cell import parse_cell
from perfsuite.errors import UsageError
from perfsuite.launch.handshake import SECRET, new_secret
from perfsuite.launch.torchrun import RankGroup, forget
from perfsuite.records import report_lines

NAMES = ("perfsuite-a", "perfsuite-b")
ADDRESSES = ("10.77.0.1", "10.77.0.2")
MOST_SECONDS = 60  # until a fault is red
FIRST = "--perf -q test_mine.py -p no:cacheprovider -o perf_warmup=1 --perf-report=report.jsonl"
RUN_SECRET = new_secret()


@dataclass
class Wire:
    """The namespaces and their ends of the wire."""

    folder: Path
    clocks: dict[int, tuple[str, ...]] = field(default_factory=dict)  # variables by node, if its clock is wrong

    def command(self, number: int, *words: str) -> list[str]:
        """As node ``number``."""
        variables = (f"PERFSUITE_NODE=n{number}", *self.clocks.get(number, ()))
        return ["ip", "netns", "exec", NAMES[number], "env", *variables, *words]

    def set(self, state: str) -> None:
        """Cut it ("down"), or mend it ("up")."""
        subprocess.run(["ip", "-n", NAMES[0], "link", "set", "wire0", state], check=True)

    def node(self, number: int, port: int, *options: str) -> subprocess.Popen[str]:
        """``perfsuite node`` with the variables that torchrun sets."""
        given = {SECRET: RUN_SECRET, "RANK": number, "WORLD_SIZE": 2, "MASTER_ADDR": ADDRESSES[0], "MASTER_PORT": port}
        variables = os.environ | {name: str(value) for name, value in given.items()}
        words = [sys.executable, "-m", "perfsuite.cli.main", "node", "--", *pytest_with(*options)]
        return subprocess.Popen(
            self.command(number, *words), cwd=self.folder, env=variables, stdout=subprocess.PIPE, text=True
        )

    def pids(self) -> list[str]:
        """All processes in the namespaces."""
        asked = (subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True) for name in NAMES)
        return [pid for one in asked for pid in one.stdout.split()]


def pytest_with(*options: str) -> list[str]:
    """The command of every node."""
    return [sys.executable, "-m", "pytest", *FIRST.split(), *options]


@pytest.fixture
def wire(tmp_path: Path, cold: None) -> Iterator[Wire]:
    """Two namespaces, joined; removed afterwards with all their processes, which no template outlives."""
    if shutil.which("ip") is None or os.getuid():
        pytest.skip("network namespaces need root and iproute2")
    made = [["netns", "add", name] for name in NAMES]
    made.append(["link", "add", "wire0", "netns", NAMES[0], "type", "veth", "peer", "name", "wire1", "netns", NAMES[1]])
    for number, (name, address) in enumerate(zip(NAMES, ADDRESSES, strict=True)):
        made.append(["-n", name, "addr", "add", f"{address}/24", "dev", f"wire{number}"])
        made += [["-n", name, "link", "set", one, "up"] for one in ("lo", f"wire{number}")]
    try:
        for words in made:
            if subprocess.run(["ip", *words], capture_output=True, check=False).returncode:
                pytest.skip("no network namespace can be made here")
        cells = ", ".join(f'"{two}"' for two, _ in PAIRS)
        (tmp_path / "test_mine.py").write_text(
            f"import pytest\n@pytest.mark.perf_cell({cells})\ndef test_mine(perf_cell): perf_cell.check()\n"
        )
        yield Wire(tmp_path)
    finally:
        for pid in Wire(tmp_path).pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        for name in NAMES:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


@pytest.mark.parametrize(
    "pairs",
    [
        pytest.param(PAIRS[:1], id="one"),
        pytest.param(PAIRS[1:], id="all others", marks=pytest.mark.slow),
    ],
)
def test_torchrun_has_the_numbers_of_one_node(wire: Wire, measure: Measure, pairs: list[tuple[str, str]]) -> None:
    """torchrun starts the same command on both; every exact metric is that of one node with as many ranks."""
    engines = " or ".join(parse_cell(two, CATALOG).strategy.engine.name for two, _ in pairs)

    def start(number: int) -> subprocess.Popen[bytes]:
        where = [f"--master-addr={ADDRESSES[0]}", "--master-port=29700", f"--node-rank={number}"]
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1", *where]
        command = [*torchrun, "--no-python", sys.executable, "-m", "perfsuite.cli.main", "node", "--"]
        new = pytest_with(
            f"--perf-steps={SETTINGS.steps}", "-o", "perf_launches=1", "--perf-update=new", f"-k={engines}"
        )  # green: torchrun has nothing to report
        variables = {**os.environ, SECRET: RUN_SECRET}
        return subprocess.Popen(
            wire.command(number, *command, *new), cwd=wire.folder, env=variables, stdout=subprocess.DEVNULL
        )

    nodes = [start(1), start(0)]
    codes = [node.wait(timeout=400) for node in nodes]
    results = report_lines.read_measured(wire.folder / "report.jsonl")
    measured = {one.measurement.cell: one.measurement for one in results}

    assert codes == [0, 0]
    assert wire.pids() == []
    assert measured.keys() == {two for two, _ in pairs}
    for two, one in pairs:
        assert measured[two].machine.nodes == ["n0", "n1"]
        assert_equal(measured[two], measure(one))


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [30, MOST_SECONDS])
def test_a_cut_wire_is_red(wire: Wire, seconds: int) -> None:
    """For a while or for good: the cell is red soon, its node is named, and no process stays on either."""
    second = wire.node(1, 29710)
    first = wire.node(0, 29710, "--perf-steps=20000", "-k", "ddp")
    wait_for(lambda: any("perfsuite.launch.server" in command(pid) for pid in wire.pids()))
    time.sleep(15)
    wire.set("down")
    begin = time.monotonic()
    with contextlib.suppress(subprocess.TimeoutExpired):
        first.wait(seconds)
    red = time.monotonic() - begin
    wire.set("up")
    said, _ = first.communicate(timeout=MOST_SECONDS)
    second.communicate(timeout=MOST_SECONDS)

    assert "Node n1: its agent is gone" in said
    assert red < MOST_SECONDS
    wait_for(lambda: wire.pids() == [])


@pytest.mark.slow
def test_clocks_that_differ_by_minutes_change_nothing(wire: Wire) -> None:
    """A node without NTP: what is compared between nodes is no time of day."""
    late = wire.folder / "late.so"
    source = Path(__file__).parents[1] / "support" / "late_clock.c"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(late), str(source)], check=True)
    wire.clocks[1] = (f"LD_PRELOAD={late}",)
    clock = [sys.executable, "-c", "import time; print(time.time())"]
    assert float(subprocess.check_output(wire.command(1, *clock))) < time.time() - 400
    second = wire.node(1, 29720, "-k", "ddp")
    first = wire.node(0, 29720, "--perf-update=new", "-k", "ddp")
    said, _ = first.communicate(timeout=200)
    second.communicate(timeout=MOST_SECONDS)

    assert first.returncode == 0, said
    assert wire.pids() == []


def command(pid: str) -> str:
    """Of a process; empty if it has ended."""
    with contextlib.suppress(OSError):
        return Path("/proc", pid, "cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""


def wait_for(what: Callable[[], bool]) -> None:
    """Raises AssertionError after a minute."""
    deadline = time.monotonic() + 60
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_two_ranks_per_node_are_one_node() -> None:
    """Node number and count follow from torchrun's ranks."""
    variables = {"RANK": "2", "WORLD_SIZE": "4", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}
    group = RankGroup.of(variables | {"MASTER_ADDR": "n0", "MASTER_PORT": "29500"})

    assert (group.number, group.nodes, group.first_on_node, group.meeting) == (1, 2, True, 29501)


@pytest.mark.parametrize("variables", [{}, {"RANK": "first", "WORLD_SIZE": "2"}])
def test_a_missing_variable_is_named(variables: dict[str, str]) -> None:
    """Without torchrun, the message says what sets them."""
    with pytest.raises(UsageError, match=r"needs RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as torchrun sets them"):
        RankGroup.of(variables)


def test_ranks_do_not_see_what_torchrun_sets() -> None:
    """It differs from run to run, and would be a change since the baseline; the user's own variables stay."""
    variables = {"RANK": "0", "TORCHELASTIC_RUN_ID": "1a", "GROUP_RANK": "0", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}
    mine = {"OMP_NUM_THREADS": "4", "NCCL_ALGO": "Ring", "TORCH_NCCL_BLOCKING_WAIT": "1"}
    found = variables | mine
    forget(found)

    assert found == mine


def test_workers_of_xdist_are_refused(pytester: pytest.Pytester) -> None:
    """In one sentence, before any worker starts."""
    pytester.makepyfile("def test_nothing(): pass")
    result = pytester.runpytest_subprocess("--perf", "-n2", "-o", "perf_launcher=torchrun")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*workers of pytest-xdist cannot share its nodes.*"])


def test_without_torchrun_the_launcher_is_refused(pytester: pytest.Pytester) -> None:
    """``perf_launcher=torchrun`` under plain pytest says how to start it."""
    pytester.makepyfile("def test_nothing(): pass")
    result = pytester.runpytest_subprocess("--perf", "-o", "perf_launcher=torchrun")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*perf_launcher=torchrun needs `perfsuite node -- pytest …` on every node.*"])
    assert parse_cell(PAIRS[0][0], CATALOG).hardware.nodes == 2
