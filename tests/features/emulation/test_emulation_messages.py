"""The emulated NCCL and the counts, compiled without any header of NVIDIA's and called by processes without torch."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from perfsuite.catalog.registry import Catalog
from perfsuite.features.emulation.compile import SOURCES
from perfsuite.features.emulation.devices import parse_gpus
from perfsuite.features.emulation.running import Emulation, unseen

RANK = Path(__file__).parents[2].joinpath("support", "emulated_rank.py")
MIB = 2**20


@pytest.fixture(scope="session")
def library(tmp_path_factory) -> Path:
    """The core and NCCL in one library."""
    if not shutil.which("g++"):
        pytest.skip("g++ is not installed")
    made = tmp_path_factory.mktemp("nccl") / "libnccl.so"
    files = [*SOURCES.glob("core/*.cpp"), *SOURCES.glob("nccl/*.cpp")]
    flags = ["-std=c++20", "-O1", "-w", "-shared", "-fPIC", "-ldl"]
    subprocess.run(["g++", *map(str, files), *flags, "-o", str(made)], check=True, timeout=300)
    return made


@pytest.fixture
def ranks(library, tmp_path):
    """``ranks("all_reduce", 3, 1000)`` runs a function of emulated_rank.py on so many ranks; what each printed."""

    def run(name: str, count: int, *arguments: int, counts: Path | None = None) -> list[list[float]]:
        emulation = Emulation(parse_gpus("h100:4", None, Catalog()), counts=counts)
        variables = {"PERFSUITE_EMULATED": emulation.settings(tmp_path), "PATH": "/usr/bin:/bin"}
        commands = [
            [sys.executable, str(RANK), str(library), name, str(count), str(rank), *map(str, arguments)]
            for rank in range(count)
        ]
        started = [
            subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for command in commands
        ]
        said = [process.communicate(timeout=120) for process in started]
        assert [process.returncode for process in started] == [0] * count, said
        return [json.loads(out) for out, _ in said]

    return run


@pytest.mark.parametrize("numbers", [1, 1000, 3 * MIB // 4 + 5])
def test_an_all_reduce_sums_numbers_of_any_size(ranks, numbers):
    """The first and the last number on every rank, also beyond a piece of 1 MiB: (1 + 2 + 3) * (i + 1)."""
    assert ranks("all_reduce", 3, numbers) == [[6, 6 * numbers]] * 3


def test_a_reduce_scatter_gives_each_rank_its_part(ranks):
    """Rank r's part of numbers r * n + i, summed over two ranks."""
    size = MIB // 2 + 3

    assert ranks("reduce_scatter", 2, size) == [[2 * 0, 2 * (size - 1)], [2 * size, 2 * (2 * size - 1)]]


def test_an_all_gather_puts_the_ranks_in_order(ranks):
    assert ranks("all_gather", 3, MIB // 2) == [[10, 10, 11, 11, 12, 12]] * 3


def test_an_all_to_all_transposes(ranks):
    """Rank r's part for rank s is 10 r + s."""
    assert ranks("all_to_all", 2, MIB // 3) == [[0, 10], [1, 11]]


def test_a_broadcast_carries_the_roots_numbers(ranks):
    assert ranks("broadcast", 3, MIB) == [[2, 2]] * 3


def test_zeros_stay_zeros(ranks):
    """What nobody has written is not copied; a rank's old contents become zero."""
    assert ranks("zeros", 2, MIB) == [[0, 0]] * 2


@pytest.mark.parametrize("numbers", [10, MIB])
def test_a_send_does_not_wait_for_its_receive(ranks, numbers):
    """Both ranks send ten messages first, and receive them in their order afterwards."""
    assert ranks("ring", 2, numbers) == [list(range(100, 110)), list(range(10))]


def test_a_split_renumbers_the_ranks_by_their_keys(ranks):
    """Ranks 0 and 2 form one part, in the opposite order, and 1 is alone: rank, size and sum in the part."""
    assert ranks("split", 3) == [[1, 2, 2], [0, 1, 1], [0, 2, 2]]


def test_an_average_of_bfloat16(ranks):
    """In fp32, rounded once: (1 + 2) / 2."""
    assert ranks("average", 2) == [[1.5]] * 2


def test_two_ranks_on_one_device_are_refused(ranks):
    """As NCCL does: invalid usage, and which ranks share the device."""
    duplicate = "Duplicate GPU detected : rank {} and rank {} both on emulated device 0"

    assert ranks("one_device", 2) == [[5, duplicate.format(0, 1)], [5, duplicate.format(1, 0)]]


def test_the_counts_are_a_file_per_process(ranks, tmp_path):
    """Collectives with their bytes, in their order, also of a process that ends by os._exit."""
    ranks("all_reduce", 2, 1000, counts=tmp_path / "counts.json")
    found = [json.loads(path.read_text()) for path in sorted(tmp_path.glob("counts.*.json"))]

    assert len(found) == 2
    assert {one["device"] for one in found} == {"emulated NVIDIA H100 80GB HBM3"}
    for one in found:
        [made] = one["total"]["collectives"]
        assert (made["call"], made["bytes"], made["ranks"]) == ("ncclAllReduce", 4000, 2)


def test_nothing_is_left(ranks, tmp_path):
    """The folder of messages is empty after the ranks have ended."""
    ranks("ring", 2, MIB)

    assert list(tmp_path.iterdir()) == []


def test_an_unknown_call_leaves_its_sentence(library, tmp_path):
    """On stderr, and for `perfsuite emulate`, which prints it unless the process' stderr is its own."""
    settings = Emulation(parse_gpus("h100", None, Catalog())).settings(tmp_path)
    call = f"import ctypes; ctypes.CDLL('{library}')._ZN8emulated7unknownEPKcS1_(b'libcufft', b'cufftPlanMany')"
    sentence = "perfsuite emulate: cufftPlanMany of libcufft is not emulated, so this process ends."
    command, variables = [sys.executable, "-c", call], {"PERFSUITE_EMULATED": settings}
    done = subprocess.run(command, env=variables, stderr=subprocess.PIPE, text=True, timeout=60, check=False)

    assert done.returncode == -signal.SIGABRT
    assert done.stderr == f"{sentence}\n"
    assert unseen(tmp_path) == [sentence]

    (tmp_path / "ended").unlink()
    subprocess.run(command, env=variables, timeout=60, check=False)

    assert (tmp_path / "ended").read_text().endswith(f"{sentence}\n")
    assert unseen(tmp_path) == []
