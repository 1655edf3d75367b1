"""device_map: one rank with several devices. What needs no device; test_emulated_device_map.py trains."""

import subprocess
import sys

import msgspec
import pytest
from gate_samples import CELL, MACHINE, METRICS, measurement

from perfsuite.baselines.store import Store
from perfsuite.catalog.cell import make_cell, parse_cell
from perfsuite.catalog.registry import Catalog
from perfsuite.compare.gather import LaunchFacts, gather
from perfsuite.errors import FileError, Refused
from perfsuite.launch.jobs import make_job
from perfsuite.meters.memory import over_devices
from perfsuite.records.baseline import Baseline
from perfsuite.records.formats import FORMAT
from perfsuite.records.sample import RankSample, Reading

CATALOG = Catalog()
SPREAD = "gpt2_tiny_l4-device_map-h100_x2"
PEAKS = [Reading(value=7, parts={"gradients": 7}), Reading(value=9, parts={"gradients": 9})]


def test_one_rank_has_all_devices():
    """The job of the launcher has one rank; a job of an engine of ranks has as many ranks as devices."""
    cells = (SPREAD, "gpt2_tiny-ddp-h100_x2")
    one, other = (make_job(parse_cell(cell, CATALOG), CATALOG, (), steps=1, warmup=0) for cell in cells)

    assert (one.world_size, one.devices, one.node_size) == (1, 2, 1)
    assert (other.world_size, other.devices) == (2, 1)


@pytest.mark.parametrize(
    ("strategy", "hardware", "sentence"),
    [
        ("device_map", "cpu_x2", "torch knows one CPU only; pp_naive runs the same split with two processes"),
        ("device_map", "h100_x1", "device_map needs at least 2 devices, h100_x1 has 1"),
        ("device_map", "h100_x2n2", "has no devices of another node: h100_x2n2 has several nodes"),
        ("device_map+offload", "h100_x2", "spreads layers over GPUs alone"),
        ("device_map+dp2", "h100_x4", "lays out all ranks itself"),
        ("device_map+accelerate", "h100_x2", "does not configure Accelerate"),
    ],
)
def test_what_cannot_be_spread_is_refused(strategy, hardware, sentence):
    with pytest.raises(Refused, match=sentence):
        make_cell("gpt2_tiny_l4", strategy, hardware, CATALOG)


def test_a_cpu_is_one_device():
    """The refusal's reason: falls when torch knows several CPUs, or keeps a second one's number."""
    code = "import torch; print(torch.cpu.device_count(), torch.ones(1, device='cpu:1').device)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)

    assert done.stdout.split() in (["1", "cpu"], ["1", "cpu:0"]), done.stderr


def test_a_rank_has_the_numbers_of_its_fullest_device():
    """The peak with its own parts, and the least that is free; the values of both devices are kept."""
    free = [Reading(value=3), Reading(value=2)]
    found = over_devices(
        [{"peak_memory_bytes": peak, "free_memory_bytes": left} for peak, left in zip(PEAKS, free, strict=True)]
    )

    assert found["peak_memory_bytes"] == msgspec.structs.replace(PEAKS[1], ranks=[7, 9])
    assert (found["free_memory_bytes"].value, found["free_memory_bytes"].ranks) == (2, [3, 2])
    assert over_devices([{"peak_memory_bytes": PEAKS[0]}]) == {"peak_memory_bytes": PEAKS[0]}


def test_a_measurement_keeps_the_peak_of_each_device():
    """One sample is complete, although the cell's hardware has two devices; all else has one value."""
    sample = RankSample(
        rank=0,
        readings={
            "peak_memory_bytes": msgspec.structs.replace(PEAKS[1], ranks=[7, 9]),
            "step_time_seconds": Reading(value=0.5, samples=[0.5]),
            "tokens": Reading(value=96),
            "loss": Reading(value=5.0, samples=[5.0]),
        },
        engine={},
        versions={},
        phases_seconds={},
    )
    made = gather(LaunchFacts(cell=SPREAD, machine=MACHINE, wall_seconds=1.0, devices=2), [sample], METRICS)

    assert (made.world_size, made.devices) == (1, 2)
    assert (made.readings["peak_memory_bytes"].value, made.readings["peak_memory_bytes"].ranks) == (9, [7, 9])
    assert made.readings["step_time_seconds"].ranks == [0.5]


@pytest.mark.parametrize(
    ("ranks", "devices", "problem"), [(1, 2, ""), (2, 1, ""), (2, 2, "world_size is 2"), (2, 0, "devices is 0")]
)
def test_a_baseline_has_the_devices_of_its_cell(tmp_path, ranks, devices, problem):
    """Ranks times the devices of each are those that the cell's id names."""
    readings = {"peak_memory_bytes": Reading(value=9, ranks=[7, 9])}
    one = msgspec.structs.replace(measurement(), world_size=ranks, devices=devices, readings=readings)
    store = Store(tmp_path)
    path = store.path(CELL)
    path.parent.mkdir(parents=True)
    record = Baseline(format=FORMAT, cell=CELL, date="2026-11-02T10:00:00+00:00", commit="abc", measurement=one)
    path.write_bytes(msgspec.json.encode(record))

    if problem:
        with pytest.raises(FileError, match=problem):
            store.load(CELL)
    else:
        assert store.load(CELL) == record
