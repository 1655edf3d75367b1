"""Cells on two nodes of a real SLURM: the same numbers as on one node, and whatever goes wrong is red and blamed."""

import dataclasses
import functools
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import slurm_cluster
from faults import named
from sampling import slow_unless

from conftest import SETTINGS, Measure
from perfsuite.catalog.cell import parse_cell
from perfsuite.catalog.project import Slurm
from perfsuite.catalog.registry import Catalog
from perfsuite.errors import UnknownName, UsageError
from perfsuite.launch.slurm import SlurmNodes
from perfsuite.records.measurement import Measurement
from perfsuite.run.runner import Runner

LONG = dataclasses.replace(SETTINGS, steps=20_000)
CATALOG = Catalog()
SECOND = slurm_cluster.NODES[1]
MOST_SECONDS = 60  # until a fault is red
PAIRS = [
    ("gpt2_tiny-ddp-cpu_x1n2", "gpt2_tiny-ddp-cpu_x2"),
    ("llama_tiny-zero3+bf16-cpu_x1n2", "llama_tiny-zero3+bf16-cpu_x2"),
    ("gpt2_tiny_l4-pp_1f1b+acc4-cpu_x1n2", "gpt2_tiny_l4-pp_1f1b+acc4-cpu_x2"),
    ("llama_tiny-tp-cpu_x1n2", "llama_tiny-tp-cpu_x2"),
    ("gpt2_tiny-fsdp2-cpu_x2n2", "gpt2_tiny-fsdp2-cpu_x4"),
]
SCRIPT = """
import os, torch
rank, ranks = (int(os.environ[name]) for name in ("SLURM_PROCID", "SLURM_NTASKS"))
torch.distributed.init_process_group("gloo", f"file://{os.getcwd()}/meet", rank=rank, world_size=ranks)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(60):
    model(torch.ones(4, 8)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
Act = Callable[[], object]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[slurm_cluster.Slurm]:
    """SLURM, with the environment in which its commands find it."""
    if reason := slurm_cluster.why_not():
        pytest.skip(reason)
    with slurm_cluster.slurm(Path(tmp_path_factory.mktemp("slurm"))) as cluster, pytest.MonkeyPatch.context() as patch:
        for name, value in cluster.variables.items():
            patch.setenv(name, value)
        yield cluster


@pytest.fixture(scope="module")
def nodes(cluster: slurm_cluster.Slurm) -> Iterator[Runner]:
    """Measures on its nodes."""
    runner = Runner(CATALOG, SETTINGS, places=SlurmNodes(Slurm(address="127.0.0.1")))
    yield runner
    runner.close()


@pytest.fixture(scope="module")
def measure_there(nodes: Runner) -> Callable[[str], Measurement]:
    """Each cell only once."""
    return functools.cache(lambda cell_id: nodes.measure(parse_cell(cell_id, CATALOG)))


def broken(cluster: slurm_cluster.Slurm, act: Act, options: Slurm | None = None) -> tuple[Measurement, float]:
    """A long cell on two nodes, in whose third step something happens, and the seconds from then until it was red."""
    runner = Runner(CATALOG, LONG, places=SlurmNodes(options or Slurm(address="127.0.0.1")))
    before = running(cluster)
    begun: list[float] = []

    def watch(cell: object, progress: list, seconds: float) -> None:
        if not begun and all(rank.step >= 3 for rank in progress):
            begun.append(time.monotonic())
            act()

    try:
        found = runner.measure(parse_cell("gpt2_tiny-ddp-cpu_x1n2", CATALOG), watch)
        return found, time.monotonic() - begun[0]
    finally:
        runner.close()
        assert left_over(cluster, before) == {}


def left_over(cluster: slurm_cluster.Slurm, before: dict[str, str]) -> dict[str, str]:
    """The processes that were not there before, after a moment to end."""
    deadline = time.monotonic() + 10
    while (found := {pid: one for pid, one in running(cluster).items() if pid not in before}) and (
        time.monotonic() < deadline
    ):
        time.sleep(0.1)
    return found


def running(cluster: slurm_cluster.Slurm) -> dict[str, str]:
    """The ranks, servers and agents of this cluster, by their pids."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            variables = (process / "environ").read_bytes()
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        mine = str(cluster.folder).encode() in variables and b"SLURM_JOB_ID=" in variables
        if mine and "perfsuite.launch" in command:
            found[process.name] = command
    return found


@pytest.mark.parametrize(("two_nodes", "one_node"), slow_unless(PAIRS[-1:].__contains__, PAIRS))
def test_two_nodes_have_the_numbers_of_one(
    measure_there: Callable[[str], Measurement], measure: Measure, two_nodes: str, one_node: str
) -> None:
    """Every exact metric is equal, rank by rank."""
    there = measure_there(two_nodes)

    assert there.machine.nodes == list(slurm_cluster.NODES)
    assert_equal(there, measure(one_node))


def assert_equal(there: Measurement, here: Measurement) -> None:
    """All exact metrics of two measurements."""
    metrics = CATALOG.metrics(parse_cell(here.cell, CATALOG).strategy.engine.process)
    exact = [metric.name for metric in metrics if metric.hold == "exact" and metric.name in here.readings]

    assert (there.outcome, here.outcome) == ("fits", "fits"), there.failure or here.failure
    assert {name: there.readings[name].ranks for name in exact} == {name: here.readings[name].ranks for name in exact}
    assert "peak_memory_bytes" in exact


def test_a_script_of_srun_is_measured(cluster: slurm_cluster.Slurm, tmp_path: Path) -> None:
    """With one rank on each node, which are one machine here, so that they share the folder."""
    (tmp_path / "train.py").write_text(SCRIPT)
    told = subprocess.run(
        ["perfsuite", "run", "--steps", "1", "--all", "--", "srun", "-N", "2", "-n", "2", "python", "train.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert told.returncode == 0, told.stdout + told.stderr
    assert "world size 2" in told.stdout and "all reduce: 288 B" in told.stdout


def test_the_conditions_are_those_of_each_node(measure_there: Callable[[str], Measurement]) -> None:
    """Load is told node by node."""
    found = measure_there("gpt2_tiny-ddp-cpu_x1n2").launches[0].conditions

    assert [name for name in found if "load" in name] == [f"{node} load_1min" for node in slurm_cluster.NODES]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("last_rank_dies", f"Node {SECOND}: Rank 1 was killed by SIGKILL"),
        ("other_torch", f"Node {SECOND}: Rank 1 runs torch 2.0, but rank 0 runs 2."),
    ],
)
def test_the_node_of_a_rank_is_blamed(nodes: Runner, fault: str, message: str) -> None:
    """A rank that dies, or runs another release, is named with its node."""
    found = nodes.measure(replace(parse_cell("gpt2_tiny-ddp-cpu_x1n2", CATALOG), faults=(named(fault),)))

    assert found.outcome == "failed"
    assert found.failure is not None
    assert found.failure.message.startswith(message)


def test_a_cancelled_job_is_red(cluster: slurm_cluster.Slurm) -> None:
    """Somebody cancels the job in mid-step."""
    found, seconds = broken(cluster, lambda: cluster.ask("scancel", newest(cluster)))

    assert found.failure is not None
    assert "was cancelled" in found.failure.message
    assert seconds < MOST_SECONDS


def newest(cluster: slurm_cluster.Slurm) -> str:
    """The job that began last."""
    return max(cluster.ask("squeue", "-h", "-o", "%i").split(), key=int)


@pytest.mark.slow  # SLURM asks a node only from time to time
def test_a_node_without_its_slurmd_is_blamed(cluster: slurm_cluster.Slurm) -> None:
    """SLURM no longer hears of the second node."""
    try:
        found, seconds = broken(cluster, cluster.started[SECOND].kill)
    finally:
        cluster.started[SECOND].wait()
        cluster.start(SECOND)
        cluster.wait_up()

    assert found.failure is not None
    assert f"node {SECOND} is" in found.failure.message
    assert seconds < MOST_SECONDS


@pytest.mark.slow
def test_a_full_folder_is_named(cluster: slurm_cluster.Slurm, tmp_path: Path) -> None:
    """The second node's working folder fills up: its rank cannot even write why it ends."""
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", small], check=False).returncode:
        pytest.skip("no file system can be mounted here")
    setup = f'if [ "$SLURM_NODEID" = 1 ]; then export TMPDIR={small}; fi'
    place = SlurmNodes(Slurm(address="127.0.0.1", setup=(setup,)))
    runner = Runner(CATALOG, SETTINGS, places=place)
    try:
        found = runner.measure(
            replace(parse_cell("gpt2_tiny-ddp-cpu_x1n2", CATALOG), faults=(named("fills_the_disk"),))
        )
    finally:
        runner.close()
        subprocess.run(["umount", "-l", small], check=True)

    assert found.failure is not None
    assert found.failure.message.startswith(f"Node {SECOND}: Rank 1")
    assert f"No space is left in {small}" in found.failure.message


@pytest.mark.slow  # SLURM's shortest limit is a minute
def test_a_time_limit_is_told(cluster: slurm_cluster.Slurm) -> None:
    """The job's time is over in mid-step."""
    found, _ = broken(cluster, lambda: None, Slurm(address="127.0.0.1", arguments=("--time=00:01:00",)))

    assert found.failure is not None
    assert "reached its time limit" in found.failure.message


def test_too_few_nodes_are_no_hardware(cluster: slurm_cluster.Slurm) -> None:
    """A cell is skipped with the number of nodes that there are."""
    place = SlurmNodes(Slurm(address="127.0.0.1"))
    absent = place.why_absent(parse_cell("gpt2_tiny-ddp-cpu_x1n3", CATALOG).hardware, CATALOG)
    place.close()

    assert absent == "cpu_x1n3 needs 3 nodes, but SLURM has 2."


def test_a_refused_job_says_what_srun_said(cluster: slurm_cluster.Slurm) -> None:
    """A partition that does not exist."""
    runner = Runner(CATALOG, SETTINGS, places=SlurmNodes(Slurm(address="127.0.0.1", partition="gpu")))
    with pytest.raises(Exception, match=r"SLURM started no agents: .*[Ii]nvalid partition"):
        runner.measure(parse_cell("gpt2_tiny-ddp-cpu_x1n2", CATALOG))
    runner.close()


def test_an_unknown_partition_is_named(cluster: slurm_cluster.Slurm) -> None:
    """Before any job: a misspelt name is not a cluster without nodes."""
    place = SlurmNodes(Slurm(address="127.0.0.1", partition="al"))
    with pytest.raises(UnknownName, match=r"No partition of SLURM named 'al'. Did you mean 'all'"):
        place.why_absent(parse_cell("gpt2_tiny-ddp-cpu_x1n2", CATALOG).hardware, CATALOG)
    place.close()


def test_an_address_of_another_machine_is_refused(cluster: slurm_cluster.Slurm) -> None:
    """pytest listens at that address alone, so it must be this machine's."""
    with pytest.raises(UsageError, match=r"opened at 192\.0\.2\.1:0: .* Write address in \[tool\.perfsuite\.slurm\]"):
        SlurmNodes(Slurm(address="192.0.2.1"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param(
            Slurm(address="127.0.0.1", setup=("sleep 60",)),
            r"job \d+ runs, but its nodes do not reach 127.0.0.1:\d+",
            marks=pytest.mark.slow,
        ),
        (Slurm(address="127.0.0.1", setup=("false",)), r"SLURM started no agents: .*[Ee]xit"),
        pytest.param(
            Slurm(address="127.0.0.1", arguments=("--hold",), wait=4),
            r"job \d+ waits \(JobHeldUser\) after 4 s",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_nodes_that_never_come_are_explained(
    cluster: slurm_cluster.Slurm, monkeypatch: pytest.MonkeyPatch, options: Slurm, message: str
) -> None:
    """A wrong address, a setup that fails, a job that waits: one sentence, no job left, and no second attempt."""
    monkeypatch.setattr("perfsuite.launch.slurm.REACH_SECONDS", 1.0)
    place, said = SlurmNodes(options), list[str]()
    place.say = said.append
    runner = Runner(CATALOG, SETTINGS, places=place)
    with pytest.raises(UsageError, match=message):
        runner.measure(parse_cell("gpt2_tiny-ddp-cpu_x1n2", CATALOG))
    if not options.setup:
        assert any(word in said[0] for word in ("runs", "waits"))
        with pytest.raises(UsageError, match="No other job is tried in this run"):
            runner.measure(parse_cell("gpt2_tiny-ddp-cpu_x1n2", CATALOG))
    runner.close()

    deadline = time.monotonic() + 60  # a cancelled job completes, and then it leaves the queue
    while (left := cluster.ask("squeue", "-h", "-n", place.job_name).strip()) and time.monotonic() < deadline:
        time.sleep(0.5)
    assert left == ""


def test_ctrl_c_leaves_no_job(cluster: slurm_cluster.Slurm, tmp_path: Path) -> None:
    """pytest gets SIGINT while a cell trains on two nodes."""
    (tmp_path / "test_mine.py").write_text(
        'import pytest\n@pytest.mark.perf_cell("gpt2_tiny-ddp-cpu_x1n2")\ndef test_mine(perf_cell): perf_cell.check()\n'
    )
    (tmp_path / "pyproject.toml").write_text('[tool.perfsuite.slurm]\naddress = "127.0.0.1"\n')
    command = ["python", "-m", "pytest", "--perf", "--perf-steps=20000", "-q", "test_mine.py"]
    before, jobs = running(cluster), cluster.ask("squeue", "-h", "-o", "%i").split()
    process = subprocess.Popen(command, cwd=tmp_path, env=os.environ, stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while cluster.ask("squeue", "-h", "-t", "R", "-o", "%i").split() == jobs and time.monotonic() < deadline:
        time.sleep(0.2)
    time.sleep(5)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=MOST_SECONDS)

    assert "KeyboardInterrupt" in said
    assert cluster.ask("squeue", "-h", "-o", "%i").split() == jobs
    assert left_over(cluster, before) == {}
