"""Fixtures of several test files. The pytest process never imports torch: ranks do."""

import contextlib
import dataclasses
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import package_index
import pytest
from browsing import browser, visit  # noqa: F401  fixtures
from faults import named
from forge_server import forge  # noqa: F401  a fixture
from hypothesis import HealthCheck, settings
from package_index import Index, Upload
from warm import WARM_START, counted_flop, rank_servers  # noqa: F401  fixtures

from perfsuite.catalog.cell import parse_cell
from perfsuite.catalog.registry import Catalog
from perfsuite.records.measurement import Measurement
from perfsuite.run.runner import Runner, Settings
from perfsuite.system.paths import cache_folder

with contextlib.suppress(ModuleNotFoundError):  # without the feature that traces, nothing does
    from warm_traces import tracing_processes  # noqa: F401  a fixture

if worker := os.environ.pop("PYTEST_XDIST_WORKER", ""):  # a pytest that a test starts is not a worker
    # No test compares times of two runs, so cells need not wait for another worker's: leases lie in the TMPDIR.
    own = Path(tempfile.gettempdir(), f"perfsuite-tests-{os.getuid()}-{worker}")
    own.mkdir(exist_ok=True)
    tempfile.tempdir = os.environ["TMPDIR"] = str(own)
    os.environ.pop("XDG_RUNTIME_DIR", None)

# Containers often set it; each of some hundred processes would compile perfsuite anew, and pytest all tests twice.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# What imports torch is forked from processes that have, of all workers: tests/support/warm_start.
os.environ["PERFSUITE_TESTS"] = str(os.getppid() if worker else os.getpid())
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(WARM_START.parent), os.environ.get("PYTHONPATH")]))
os.environ["XDG_CACHE_HOME"] = str(cache_folder().parent)  # pytester moves the home, and what was compiled lies in it
# For the pytests that tests start: importing hypothesis takes as long as the rest of one that trains nothing.
ADDOPTS = os.environ["PYTEST_ADDOPTS"] = "-p no:hypothesispytest"
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job's children would inherit that it is ignored
# On a shared machine, another process may cause a slow example.
settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared")
# A cell compiles in its first step, which takes minutes on a busy machine.
SETTINGS = Settings(steps=1, warmup=1, step_timeout=300.0, import_path=(str(Path(__file__).parent / "support"),))
Measure = Callable[..., Measurement]

# Long tests of single engines, libraries and faults, of which quicker ones guard most kinds: how their names begin.
NIGHTLY = tuple((Path(__file__).parent / "data" / "nightly.txt").read_text().splitlines())

# The files that take longest, which begin: else one worker ends long before the other.
LONGEST = (
    *("test_tensor_parallel", "test_cluster", "test_trace", "test_parity", "test_plugin", "test_techniques"),
    *("test_upgrade_command", "test_loops", "test_torchrun", "test_cgroup", "test_cache_folders", "test_upgrade_limit"),
    *("test_update", "test_replicas", "test_ladder", "test_duet", "test_ladder_runs", "test_benchmarks"),
    *("test_deepspeed", "test_offload", "test_script_ranks", "test_accumulation", "test_deadline", "test_workspaces"),
)


def pytest_configure(config: pytest.Config) -> None:
    """xdist would begin with the files of most tests, and end with those of few long ones."""
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


@pytest.hookimpl(tryfirst=True)  # before -m leaves some out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """NIGHTLY tests are slow ones. No test waits for ever: it ends with the stacks of its threads."""
    for item in items:
        if item.nodeid.removeprefix("tests/").startswith(NIGHTLY):
            item.add_marker(pytest.mark.slow)
    order = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path.stem, len(order)))
    for item in items:
        long = any(item.get_closest_marker(name) for name in ("slow", "network", "emulated"))
        item.add_marker(pytest.mark.timeout(3600 if long else 900), append=False)


@pytest.fixture
def pytester(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """pytest's own, which forgets the options above."""
    monkeypatch.setenv("PYTEST_ADDOPTS", ADDOPTS)
    return pytester


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process that the test starts imports torch itself: for hash seeds, memory, and how processes end."""
    monkeypatch.delenv("PERFSUITE_TESTS")


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> list[Upload]:
    """Small wheels for a package index of our own, built once."""
    return package_index.packages(tmp_path_factory.mktemp("wheels"))


@pytest.fixture(scope="module")
def own_index(packages: list[Upload], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    """An index of them with upload dates, the only one that pip and uv know while the module's tests run."""
    with Index(packages).serve() as index, pytest.MonkeyPatch.context() as patch:
        index.configure(patch, tmp_path_factory.mktemp("uv"))
        yield index


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    """perfsuite's own catalog."""
    return Catalog()


@pytest.fixture(scope="session")
def runner(catalog: Catalog) -> Iterator[Runner]:
    """Few steps; the rank server stays warm for the whole session."""
    runner = Runner(catalog, SETTINGS)
    yield runner
    runner.close()


@pytest.fixture(scope="session")
def measure(catalog: Catalog) -> Measure:
    """``measure("t5_tiny-ddp-cpu_x2")`` trains a real cell; each cell without faults only once per session. One timed
    step is enough for what does not compare steps.
    """
    known: dict[tuple[str, int], Measurement] = {}

    def measure(cell_id: str, *faults: str, steps: int = SETTINGS.steps) -> Measurement:
        if not faults and (cell_id, steps) in known:
            return known[cell_id, steps]
        with contextlib.closing(Runner(catalog, dataclasses.replace(SETTINGS, steps=steps))) as runner:
            measured = runner.measure(replace(parse_cell(cell_id, catalog), faults=tuple(map(named, faults))))
        return measured if faults else known.setdefault((cell_id, steps), measured)

    return measure
