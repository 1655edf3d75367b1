"""The device definitions: sane, consistent with independent statements, and found by the names that drivers report."""

import dataclasses
import re
import tomllib
from importlib import resources

import pytest

from perfsuite.catalog.definitions import Device
from perfsuite.catalog.registry import Catalog

DEVICES = Catalog().all("device")
MIB = 2**20

every_device = pytest.mark.parametrize("device", DEVICES.values(), ids=DEVICES)
GPUS = {name: device for name, device in DEVICES.items() if not device.topology}
every_gpu = pytest.mark.parametrize("device", GPUS.values(), ids=GPUS)

# The chips: multiprocessors (compute units), fp16 or bf16 multiply-adds per clock in the matrix units of each of them
# (accumulating in fp32), and the clock in GHz at which the vendor states the peak.
CHIPS = {
    "t4": (40, 512, 1.590),
    "v100_32g": (80, 512, 1.530),
    "v100_pcie_32g": (80, 512, 1.380),
    "rtx3090": (82, 256, 1.695),
    "a6000": (84, 512, 1.800),
    "a10g": (80, 256, 1.710),
    "a100_40g": (108, 1024, 1.410),
    "a100_80g": (108, 1024, 1.410),
    "a100_pcie_80g": (108, 1024, 1.410),
    "h100": (132, 2048, 1.830),
    "h100_pcie": (114, 2048, 1.620),
    "h200": (132, 2048, 1.830),
    "h800": (132, 2048, 1.830),
    "h20": (78, 480, 1.980),  # as its rate says: fewer than the chip has
    "b200": (148, 4096, 1.860),
    "b300": (148, 4096, 1.860),
    "gb200": (148, 4096, 2.062),
    "gb300": (148, 4096, 2.062),
    "rtx5090": (170, 256, 2.407),
    "rtx4090": (128, 256, 2.520),
    "l4": (58, 512, 2.040),
    "l40s": (142, 512, 2.490),
    "mi250x": (110, 512, 1.700),
    "mi300x": (304, 1024, 2.100),
    "mi355x": (256, 2048, 2.400),
}

# The memories: width of the bus in bits, and gigabits per second of each of its pins.
MEMORIES = {
    "t4": (256, 10.0),
    "v100_32g": (4096, 1.752),
    "v100_pcie_32g": (4096, 1.752),
    "rtx3090": (384, 19.5),
    "a6000": (384, 16.0),
    "a10g": (384, 12.5),
    "a100_40g": (5120, 2.43),
    "a100_80g": (5120, 3.186),
    "a100_pcie_80g": (5120, 3.024),
    "h100": (5120, 5.24),
    "h100_pcie": (5120, 3.186),
    "h200": (6144, 6.25),
    "h800": (5120, 5.24),
    "h20": (6144, 5.2),
    "b200": (8192, 7.5),
    "b300": (8192, 7.5),
    "gb200": (8192, 7.8),
    "gb300": (8192, 7.8),
    "rtx5090": (512, 28.0),
    "rtx4090": (384, 21.0),
    "l4": (192, 12.5),
    "l40s": (384, 18.0),
    "mi250x": (4096, 3.2),
    "mi300x": (8192, 5.2),
    "mi355x": (8192, 7.8),
}

# Peaks in TFLOP/s as other projects state them.
STATED = (
    ("composer", "t4", "fp32", 8.1),
    ("composer", "t4", "fp16", 65),
    ("composer", "v100_32g", "fp32", 15.7),
    ("composer", "v100_32g", "fp16", 125),
    ("composer", "v100_pcie_32g", "fp32", 14),
    ("composer", "v100_pcie_32g", "fp16", 112),
    ("composer", "a100_80g", "fp32", 19.5),
    ("composer", "a100_80g", "tf32", 156),
    ("composer", "h100", "fp32", 67),
    ("composer", "h100", "tf32", 989 / 2),
    ("composer", "h100", "fp8", 3958 / 2),
    ("composer", "h100_pcie", "fp32", 51),
    ("composer", "h100_pcie", "fp8", 3026 / 2),
    ("composer", "h200", "bf16", 1979 / 2),
    ("lightning", "a100_40g", "bf16", 312),
    ("lightning", "h100", "bf16", 1979 / 2),
    ("lightning", "h100_pcie", "bf16", 1513 / 2),
    ("torchtitan", "a100_pcie_80g", "bf16", 312),
    ("torchtitan", "h200", "bf16", 989),
    ("torchtitan", "b200", "bf16", 2250),
    ("torchtitan", "l40s", "bf16", 362),
    ("torchtitan", "mi250x", "bf16", 191.5),
    ("torchtitan", "mi300x", "bf16", 1300),
    ("ml-engineering", "b200", "tf32", 1125),
    ("ml-engineering", "b300", "bf16", 2250),
    ("ml-engineering", "gb200", "bf16", 2500),
    ("ml-engineering", "gb200", "fp8", 5000),
    ("ml-engineering", "b200", "fp8", 4500),
    ("ml-engineering", "l40s", "fp32", 91.6),
    ("ml-engineering", "l40s", "tf32", 183),
    ("ml-engineering", "l40s", "fp8", 733),
    ("ml-engineering", "mi300x", "fp32", 163.4),
    ("ml-engineering", "mi300x", "fp8", 2600),
    ("torch", "l4", "fp32", 30.3),
    ("torch", "l4", "bf16", 242 / 2),
    ("torch", "l4", "tf32", 120 / 2),
    ("torch", "mi300x", "tf32", 653.7),
)

# Name and MiB of memory as nvidia-smi, rocm-smi or torch report them, and the device that it is.
REPORTED = (
    ("Tesla T4", 15360, "t4"),
    ("Tesla T4", 15109, "t4"),
    ("Tesla V100-SXM2-32GB", 32768, "v100_32g"),
    ("Tesla V100-SXM2-32GB", 32510, "v100_32g"),
    ("Tesla V100-PCIE-32GB", 32768, "v100_pcie_32g"),
    ("NVIDIA GeForce RTX 3090", 24576, "rtx3090"),
    ("NVIDIA GeForce RTX 3090", 24268, "rtx3090"),
    ("NVIDIA RTX A6000", 49140, "a6000"),
    ("NVIDIA RTX A6000", 46068, "a6000"),
    ("NVIDIA A10G", 23028, "a10g"),
    ("NVIDIA A100-SXM4-40GB", 40960, "a100_40g"),
    ("NVIDIA A100-SXM4-80GB", 81920, "a100_80g"),
    ("NVIDIA A100 80GB PCIe", 81920, "a100_pcie_80g"),
    ("NVIDIA H100 80GB HBM3", 81559, "h100"),
    ("NVIDIA H100 PCIe", 81559, "h100_pcie"),
    ("NVIDIA H200", 143771, "h200"),
    ("NVIDIA H800", 81559, "h800"),
    ("NVIDIA H20", 97871, "h20"),
    ("NVIDIA B200", 183359, "b200"),
    ("NVIDIA B300 SXM6 AC", 275040, "b300"),
    ("NVIDIA GB200", 189471, "gb200"),
    ("NVIDIA GB300", 284208, "gb300"),
    ("NVIDIA GeForce RTX 5090", 32607, "rtx5090"),
    ("NVIDIA GeForce RTX 4090", 24564, "rtx4090"),
    ("NVIDIA L4", 23034, "l4"),
    ("NVIDIA L40S", 46068, "l40s"),
    ("AMD Instinct MI250X", 65520, "mi250x"),
    ("AMD Instinct MI300X", 196592, "mi300x"),
    ("AMD Instinct MI355X", 294896, "mi355x"),
    ("TPU v5 lite", 16384, "tpu_v5e"),
    ("TPU v5", 98304, "tpu_v5p"),
    ("TPU v6 lite", 32768, "tpu_v6e"),
    ("TPU7x", 196608, "tpu_7x"),
)

# Devices with names like ours that are none of ours.
LOOKALIKES = (
    ("Tesla V100-SXM2-16GB", 16384),
    ("Tesla V100-SXM3-32GB", 32768),
    ("Tesla V100S-PCIE-32GB", 32768),
    ("NVIDIA A10", 23028),
    ("NVIDIA A100-PCIE-40GB", 40960),
    ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", 9728),
    ("NVIDIA RTX 6000 Ada Generation", 49140),
    ("NVIDIA L40", 46068),
    ("NVIDIA H100 NVL", 95830),
    ("NVIDIA GH200 480GB", 97871),
    ("NVIDIA GH200 144G HBM3e", 146831),
    ("NVIDIA H800 PCIe", 81559),
    ("NVIDIA GeForce RTX 4090 D", 24564),
    ("NVIDIA GeForce RTX 4090 Laptop GPU", 24564),
    ("NVIDIA GeForce RTX 3090 Ti", 24564),
    ("NVIDIA H200 NVL", 143771),
    ("AMD Instinct MI210", 65520),
)


UNKNOWN_RESERVE = ("a6000", "mi250x", "mi300x", "mi355x", "tpu_7x")


def _named(name: str, memory_mib: int) -> list[str]:
    """The devices whose fragments occur in the name and whose memory is about that much."""
    return [
        device.name
        for device in DEVICES.values()
        if all(fragment in name.lower() for fragment in device.matches)
        and not any(fragment in name.lower() for fragment in device.excludes)
        and memory_mib * MIB == pytest.approx(device.memory_bytes, rel=0.1)
    ]


def test_every_key_of_a_file_is_a_fact_of_a_device():
    """A misspelt one would have no effect. Sizes are in MiB there."""
    known = {one.name.replace("_bytes", "_mib") for one in dataclasses.fields(Device)}
    files = [path for path in resources.files("perfsuite.catalog.hardware").iterdir() if path.name.endswith(".toml")]
    keys = {key for file in files for facts in tomllib.loads(file.read_text()).values() for key in facts}

    assert files
    assert keys <= known


@every_device
def test_name_is_a_part_of_a_cell_id(device):
    """A name holds no dash, and does not end like the rank count that follows it in a cell's id."""

    assert re.fullmatch("[a-z0-9_]+", device.name)
    assert not re.search(r"_x\d+(n\d+)?$", device.name)


@every_device
def test_the_driver_keeps_a_little(device):
    """CUDA gives all but some hundred MiB of what the driver reports; for some devices no total is published."""

    assert device.usable_bytes == device.memory_bytes - device.reserved_bytes
    assert 200 * MIB < device.reserved_bytes < 0.03 * device.memory_bytes + 10 * MIB or device.name in UNKNOWN_RESERVE


@every_device
def test_units(device):
    """Every figure is of the size that its unit gives it: bytes, bytes per second and FLOP/s."""

    assert 8 * 2**30 < device.memory_bytes < 512 * 2**30
    assert device.memory_bytes % MIB == 0
    assert 1e11 < device.memory_bandwidth < 1e13
    assert 1e10 < device.host_bandwidth < (1e12 if device.domain else 1e11)  # Grace has NVLink
    assert device.link_bandwidth == 0 or device.host_bandwidth < device.link_bandwidth < 1e12
    assert all(1e12 < flops < 2e16 for flops in device.dense_flops.values())
    assert device.source


@every_gpu
def test_dtypes(device):
    """Every GPU states fp32 and fp16, and no dtype that is unknown."""

    assert {"fp32", "fp16"} <= device.dense_flops.keys() <= {"fp32", "tf32", "fp16", "bf16", "fp8", "fp4"}


@every_device
def test_fragments_are_lower_case(device):
    """Fragments are compared with the lower-case name."""

    assert device.matches
    assert all(fragment == fragment.lower() for fragment in device.matches)


@every_gpu
def test_dtypes_are_in_proportion(device):
    """bf16 runs at fp16's rate, tf32 at half of it and fp8 at twice: a figure with sparsity would stand out."""
    flops = device.dense_flops
    half = flops["fp16"]

    assert flops.get("bf16", half) == half
    assert flops.get("tf32", half / 2) == pytest.approx(half / 2, rel=0.02)
    assert flops.get("fp8", half * 2) == pytest.approx(half * 2, rel=0.02)


@every_gpu
def test_peak_is_the_chips(device):
    """The fp16 peak is what the chip's matrix units, counted one by one, do at the stated clock."""
    units, multiply_adds, clock_ghz = CHIPS[device.name]

    assert device.dense_flops["fp16"] == pytest.approx(units * multiply_adds * 2 * clock_ghz * 1e9, rel=0.02)


@every_gpu
def test_bandwidth_is_the_memorys(device):
    """The memory bandwidth is the bus's width times the rate of its pins."""
    bits, gigabits = MEMORIES[device.name]

    assert device.memory_bandwidth == pytest.approx(bits / 8 * gigabits * 1e9, rel=0.02)


@pytest.mark.parametrize(("who", "name", "dtype", "teraflops"), STATED)
def test_peak_is_what_others_state(who, name, dtype, teraflops):
    """A peak is within 5 % of what another project states."""

    assert DEVICES[name].dense_flops[dtype] == pytest.approx(teraflops * 1e12, rel=0.05), f"{who} states {teraflops}e12"


@every_gpu
def test_measured_matmul_is_below_the_peak(device):
    """No measured matmul is above the dense peak, or below 40 % of it."""
    peak = device.dense_flops.get("bf16", device.dense_flops["fp16"])

    assert device.measured_matmul_flops is None or 0.4 * peak < device.measured_matmul_flops < peak


@pytest.mark.parametrize(("name", "memory_mib", "device"), REPORTED)
def test_reported_name_is_found(name, memory_mib, device):
    """The name and memory that a driver reports are those of one device."""

    assert _named(name, memory_mib) == [device]


def test_every_device_is_reported():
    """There is a driver's name for every device."""

    assert {device for _, _, device in REPORTED} == DEVICES.keys()


@pytest.mark.parametrize(("name", "memory_mib"), LOOKALIKES)
def test_lookalike_is_not_taken(name, memory_mib):
    """A device that is not in the catalog is not mistaken for one that is."""

    assert _named(name, memory_mib) == []
