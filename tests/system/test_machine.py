"""The machine at hand, with a driver of our own: what it says, what it is in the catalog, what is absent."""

import os
import platform
from collections.abc import Callable, Iterator
from dataclasses import replace
from unittest.mock import Mock

import fake_driver
import pytest
from fake_driver import SWITCH, FakeGpu

from perfsuite.catalog.cell import parse_cell, parse_hardware
from perfsuite.catalog.registry import Catalog
from perfsuite.compare.machines import why_other_machine
from perfsuite.launch.hardware_here import describe, device_indices, device_of, why_absent
from perfsuite.launch.launcher import CellFailed, Launcher
from perfsuite.records.failure import Failure
from perfsuite.run.runner import Runner, Settings
from perfsuite.show.text.reasons import other_machine_words
from perfsuite.system import machine
from perfsuite.system.machine import Gpu, gpus, links_between

CATALOG = Catalog()
H200 = FakeGpu()
T4 = FakeGpu("Tesla T4", 15_360, "GPU-bbbb-2")

Driver = Callable[..., None]


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    """``driver(H200, T4)`` makes a machine with these GPUs; without a call there is no driver."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def install(*gpus: FakeGpu, ancestors: dict[tuple[int, int], int] | None = None, failing: str = "") -> None:
        fake_driver.install(gpus, ancestors, [failing], monkeypatch.setattr)

    install(failing="nvmlInit")
    yield install
    fake_driver.forget()


def test_gpus(driver: Driver) -> None:
    """Every accelerator is read with its name, its memory in bytes and its driver."""
    driver(H200, T4)

    assert gpus() == (
        Gpu(0, "NVIDIA H200", 143_771 * 2**20, "570.86.15", "GPU-aaaa-1"),
        Gpu(1, "Tesla T4", 15_360 * 2**20, "570.86.15", "GPU-bbbb-2"),
    )


@pytest.mark.parametrize("failing", ["nvmlInit", "nvmlDeviceGetCount", "nvmlSystemGetDriverVersion"])
def test_no_gpu(driver: Driver, failing: str) -> None:
    """Without a driver, or with one that fails, the machine has no GPU."""
    driver(H200, failing=failing)

    assert gpus() == ()
    assert why_absent(parse_hardware("h200_x1", CATALOG), CATALOG) == "h200_x1 is not here: this machine has no GPU."


def test_a_gpu_without_memory_of_its_own(driver: Driver) -> None:
    """A GPU that shares the host's memory, whose memory the driver does not know, does not stop cells on the others."""
    driver(FakeGpu("NVIDIA GB10", None, "GPU-cccc-3"), H200)

    assert gpus() == (Gpu(1, "NVIDIA H200", 143_771 * 2**20, "570.86.15", "GPU-aaaa-1"),)


@pytest.mark.parametrize(
    ("name", "mebibytes", "device"),
    [
        ("NVIDIA H200", 143_771, "h200"),
        ("NVIDIA H100 80GB HBM3", 81_559, "h100"),
        ("NVIDIA A100-SXM4-40GB", 40_960, "a100_40g"),
        ("NVIDIA A100-SXM4-80GB", 81_920, "a100_80g"),
        ("NVIDIA GeForce RTX 3090", 24_268, "rtx3090"),
        ("Tesla V100-SXM2-32GB", 32_510, "v100_32g"),
        ("NVIDIA L40S", 46_068, "l40s"),
        ("NVIDIA L4", 23_034, "l4"),
        ("NVIDIA GeForce GTX 1080", 8_192, None),
        ("NVIDIA L40", 46_068, None),
        ("NVIDIA GeForce RTX 3090 Ti", 24_564, None),
        ("NVIDIA H200 NVL", 143_771, None),
        ("NVIDIA GH200 480GB", 97_871, None),
        ("Tesla V100-SXM2-16GB", 16_384, None),
    ],
)
def test_device_of(name: str, mebibytes: int, device: str | None) -> None:
    """A driver's name is the catalog's device, and a lookalike is none."""
    found = device_of(Gpu(0, name, mebibytes * 2**20, "", ""), CATALOG)

    assert (found.name if found else None) == device


@pytest.mark.parametrize(
    ("hardware", "reason"),
    [
        ("h200_x1", ""),
        ("h200_x2", ""),
        ("t4_x1", ""),
        ("h200_x3", "h200_x3 is not here: this machine has NVIDIA H200, Tesla T4, NVIDIA H200."),
        ("a100_80g_x1", "a100_80g_x1 is not here: this machine has NVIDIA H200, Tesla T4, NVIDIA H200."),
        ("h200_x1n2", "h200_x1n2 has 2 nodes: SLURM or torchrun must give them (perf_launcher)."),
        ("cpu_x1", ""),
    ],
)
def test_why_absent(driver: Driver, hardware: str, reason: str) -> None:
    """Hardware is here if there are as many devices of its kind; else the reason names what is here."""
    driver(H200, T4, H200)

    assert why_absent(parse_hardware(hardware, CATALOG), CATALOG) == reason


def test_too_many_ranks_for_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU carries four ranks a core, not more."""
    monkeypatch.setattr(machine, "cores", lambda: 2)

    assert why_absent(parse_hardware("cpu_x8", CATALOG), CATALOG) == ""
    assert why_absent(parse_hardware("cpu_x9", CATALOG), CATALOG) == "cpu_x9: this machine's 2 cores allow 8 ranks."


@pytest.mark.parametrize(("hardware", "indices"), [("h200_x1", [0, 2]), ("t4_x1", [1]), ("l4_x1", []), ("cpu_x1", [])])
def test_device_indices(driver: Driver, hardware: str, indices: list[int]) -> None:
    """The devices of a kind, by the driver's numbers; a CPU has none."""
    driver(H200, T4, H200)

    assert device_indices(parse_hardware(hardware, CATALOG), CATALOG) == indices


@pytest.mark.parametrize(
    ("shown", "indices"),
    [("1", [1]), ("0,1", [0, 1]), ("", []), ("-1", []), ("0,-1,1", [0]), ("GPU-bbbb", [1]), ("MIG-1", [])],
)
def test_hidden_devices_stay_hidden(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, shown: str, indices: list[int]
) -> None:
    """A GPU that the caller's CUDA_VISIBLE_DEVICES leaves out is not used, by whatever it names GPUs."""
    driver(H200, replace(H200, uuid="GPU-bbbb-9"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)

    assert device_indices(parse_hardware("h200_x1", CATALOG), CATALOG) == indices


def test_describe_a_cpu(driver: Driver) -> None:
    """A CPU cell's machine is the CPU, whatever GPUs stand beside it; its identity is stable and tells no name."""
    driver(H200)
    record = describe(parse_hardware("cpu_x2", CATALOG), CATALOG)

    assert (record.device, record.driver, record.cores) == (machine.cpu_name(), "", len(os.sched_getaffinity(0)))
    assert record.memory_bytes > 2**20
    assert record == describe(parse_hardware("cpu_x1", CATALOG), CATALOG)
    assert os.uname().nodename not in record.identity


def test_a_machine_is_known_by_its_gpus(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container of another name on the same GPU compares with the last one; another GPU of the kind does not."""
    hardware = parse_hardware("h200_x1", CATALOG)
    driver(H200, T4)
    here = describe(hardware, CATALOG).identity
    monkeypatch.setattr(platform, "node", lambda: "another container")
    renamed = describe(hardware, CATALOG).identity
    driver(replace(H200, uuid="GPU-dddd-1"), T4)

    assert here == renamed != describe(hardware, CATALOG).identity


# The first two are linked, two hang at one host bridge, and the sockets are far from each other.
FOUR = [replace(H200, uuid=f"GPU-aaaa-{number}", nvlinks={1 - number: 4} if number < 2 else {}) for number in range(4)]
ANCESTORS = {(0, 1): 40, (2, 3): 30, (0, 2): 50, (0, 3): 50, (1, 2): 50, (1, 3): 50}


def test_another_kind_of_gpu_is_recorded_as_what_it_is(driver: Driver) -> None:
    """A cell of an absent H200 can only have run on the T4 that is here; without a GPU, on the CPU."""
    hardware = parse_hardware("h200_x1", CATALOG)
    assert not describe(hardware, CATALOG).gpus
    fake_driver.forget()
    driver(T4)

    assert describe(hardware, CATALOG).device == "Tesla T4"


@pytest.mark.parametrize(
    ("devices", "links"),
    [
        ([0, 1], {"0-1": "NV4"}),
        ([2, 3], {"0-1": "PHB"}),
        ([1, 2], {"0-1": "SYS"}),
        ([3], {}),
        ([0, 1, 2], {"0-1": "NV4", "0-2": "SYS", "1-2": "SYS"}),
    ],
)
def test_links_are_those_of_the_leased_gpus(driver: Driver, devices: list[int], links: dict[str, str]) -> None:
    """Each two of them, by rank, in nvidia-smi's words."""
    driver(*FOUR, ancestors=ANCESTORS)
    record = describe(parse_hardware(f"h200_x{len(devices)}", CATALOG), CATALOG, devices)

    assert (record.gpus, record.links) == ([f"GPU-aaaa-{number}" for number in devices], links)


@pytest.mark.parametrize(("links", "word"), [((18, 18), "NV18"), ((18, 17), "NV17"), ((18, 0), "SYS")])
def test_links_through_a_switch(driver: Driver, links: tuple[int, int], word: str) -> None:
    """As many as both GPUs have into it."""
    driver(*(replace(H200, nvlinks={SWITCH: count}) for count in links), ancestors={(0, 1): 50})

    assert links_between([0, 1]) == {"0-1": word}


@pytest.mark.parametrize(
    ("level", "word"), [(0, "PIX"), (10, "PIX"), (20, "PXB"), (30, "PHB"), (40, "NODE"), (50, "SYS")]
)
def test_ways_over_pcie(driver: Driver, level: int, word: str) -> None:
    """The driver's levels have the words of nvidia-smi topo -m."""
    driver(H200, H200, ancestors={(0, 1): level})

    assert links_between([0, 1]) == {"0-1": word}


def test_a_driver_that_tells_no_links(driver: Driver) -> None:
    """The GPUs alone tell the machines apart."""
    driver(H200, H200)

    assert describe(parse_hardware("h200_x2", CATALOG), CATALOG, [0, 1]).links == {}


def test_a_pair_is_known_by_its_gpus_and_their_link(driver: Driver) -> None:
    """Two pairs of one machine do not compare in time, nor does one that lost its NVLink; one GPU needs no link."""
    hardware = parse_hardware("h200_x2", CATALOG)
    driver(*FOUR, ancestors=ANCESTORS)
    here, again, other = (describe(hardware, CATALOG, pair).identity for pair in ([0, 1], [0, 1], [2, 3]))
    driver(*(replace(one, nvlinks={}) for one in FOUR), ancestors=ANCESTORS)
    bridgeless = describe(hardware, CATALOG, [0, 1]).identity

    assert here == again
    assert len({here, other, bridgeless}) == 3


def test_before_a_lease_the_gpus_are_those_that_it_takes_first(driver: Driver) -> None:
    """A baseline's machine is looked for among them."""
    hardware = parse_hardware("h200_x2", CATALOG)
    driver(*FOUR, ancestors=ANCESTORS)

    assert describe(hardware, CATALOG) == describe(hardware, CATALOG, [0, 1])


def test_a_measurement_is_of_the_gpus_that_it_leased(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever were free."""
    driver(*FOUR, ancestors=ANCESTORS)
    failure = Failure(kind="raised", rank=0, message="nothing was run")
    monkeypatch.setattr(Launcher, "run", Mock(side_effect=CellFailed(failure)))
    runner = Runner(CATALOG, Settings())
    measured = runner.measure_on([2, 3], parse_cell("gpt2_tiny-ddp-h200_x2", CATALOG), lambda *_: None)

    assert measured.failure == failure
    assert measured.machine.gpus == ["GPU-aaaa-2", "GPU-aaaa-3"]


def test_other_gpus_are_named(driver: Driver) -> None:
    """A baseline of another pair says which, and how it was linked."""
    hardware = parse_hardware("h200_x2", CATALOG)
    driver(*FOUR, ancestors=ANCESTORS)
    recorded, here = (describe(hardware, CATALOG, pair) for pair in ([0, 1], [2, 3]))

    assert why_other_machine(recorded, recorded) is None
    assert (why := why_other_machine(recorded, here))
    assert other_machine_words(why) == (
        "recorded on other GPUs (GPU-aaaa-0 and GPU-aaaa-1 by NV4), here: GPU-aaaa-2 and GPU-aaaa-3 by PHB"
    )


def test_describe_a_gpu(driver: Driver) -> None:
    """A GPU cell's machine is the GPU of the cell's kind, not just the first one."""
    driver(T4, H200)
    record = describe(parse_hardware("h200_x1", CATALOG), CATALOG)

    assert (record.device, record.driver, record.memory_bytes) == ("NVIDIA H200", "570.86.15", 143_771 * 2**20)
