"""NVIDIA Ampere: A100 as a module (40 and 80 GB) and as a PCIe card, and the smaller RTX 3090, RTX A6000 and A10G.

Sources: NVIDIA A100 datasheet (1758950), GA102 whitepaper v2.0 (RTX 3090, appendix A; RTX A6000, appendix C), NVIDIA
A10G datasheet for AWS (February 2022); peaks compared with composer/callbacks/speed_monitor.py of mosaicml/composer,
fabric/utilities/throughput.py of Lightning and tools/utils.py of torchtitan; measured matmuls from
compute/accelerator/README.md of stas00/ml-engineering (A100) and stas00's transformers-benchmarks (A6000).
PCIe is gen 4 x16: 31.5 GB/s in one direction. Bandwidths of the A100 40 GB and of the GA102 cards are recalled from
their datasheets.
"""

import dataclasses

from perfsuite.catalog.definitions import Device

_A100_40G = Device(
    name="a100_40g",
    matches=("a100", "sxm", "40gb"),
    memory_bytes=40_960 * 2**20,  # nvidia-smi; 40536 MiB by older drivers
    reserved_bytes=424 * 2**20,  # not counted by older drivers
    compute_capability=8.0,
    memory_bandwidth=1_555e9,
    dense_flops={"fp32": 19.5e12, "tf32": 156e12, "fp16": 312e12, "bf16": 312e12},
    link_bandwidth=300e9,  # NVLink 3; the datasheet's 600 counts both directions
    host_bandwidth=31.5e9,
    source="NVIDIA A100 datasheet",
    measured_matmul_flops=271.2e12,
)
_A100_80G = dataclasses.replace(
    _A100_40G,
    name="a100_80g",
    matches=("a100", "sxm", "80gb"),
    memory_bytes=81_920 * 2**20,  # nvidia-smi
    reserved_bytes=768 * 2**20,  # torch sees 79.25 GiB (levihsu/OOTDiffusion #235)
    memory_bandwidth=2_039e9,
)

DEVICES = (
    Device(
        name="rtx3090",
        matches=("geforce rtx 3090",),
        excludes=("3090 ti",),
        memory_bytes=24_576 * 2**20,  # nvidia-smi; 24268 MiB by older drivers
        reserved_bytes=308 * 2**20,  # torch sees 23.70 GiB (GaoLii/DSP #10)
        compute_capability=8.6,
        memory_bandwidth=936e9,
        # Accumulating in fp32, as torch does; the whitepaper's 142 accumulates in fp16. Lightning has had 35.6 here,
        # the rate without tensor cores.
        dense_flops={"fp32": 35.6e12, "tf32": 35.6e12, "fp16": 71e12, "bf16": 71e12},
        link_bandwidth=56.25e9,  # only with the optional bridge
        linked=2,
        host_bandwidth=31.5e9,
        source="NVIDIA GA102 whitepaper v2.0, appendix A",
        # No measured matmul: the 81 TFLOP/s in transformers-benchmarks are a 3090 Ti's. Published figures for this card
        # (76) are above the peak, since it boosts past the clock that the peak is stated at.
    ),
    Device(
        name="a6000",
        matches=("rtx a6000",),
        memory_bytes=49_140 * 2**20,  # nvidia-smi with ECC off, as it ships; 46068 MiB with ECC on
        compute_capability=8.6,
        memory_bandwidth=768e9,
        # Lightning has had 38.7 for bf16, the rate without tensor cores.
        dense_flops={"fp32": 38.7e12, "tf32": 77.4e12, "fp16": 154.8e12, "bf16": 154.8e12},
        link_bandwidth=56.25e9,  # only with the optional bridge
        linked=2,
        host_bandwidth=31.5e9,
        source="NVIDIA GA102 whitepaper v2.0, appendix C",
        measured_matmul_flops=95e12,  # fp16
    ),
    Device(
        name="a10g",
        matches=("nvidia a10g",),
        memory_bytes=23_028 * 2**20,  # nvidia-smi, ECC on
        reserved_bytes=511 * 2**20,  # torch sees 21.99 GiB on an A10 with the same memory (zai-org/CogVLM #236)
        compute_capability=8.6,
        memory_bandwidth=600e9,
        # composer and Lightning give it 125, the A10's; this variant for AWS accumulates in fp32 at half the rate.
        # The fp32 figure is computed: 80 multiprocessors of 128 lanes at 1.71 GHz (the A10 has 72, hence its 31.2).
        dense_flops={"fp32": 35e12, "tf32": 35e12, "fp16": 70e12, "bf16": 70e12},
        link_bandwidth=0,
        host_bandwidth=31.5e9,
        source="NVIDIA A10G datasheet for AWS",
    ),
    _A100_40G,
    _A100_80G,
    dataclasses.replace(
        _A100_80G,
        name="a100_pcie_80g",
        matches=("a100", "80gb", "pcie"),
        memory_bandwidth=1_935e9,
        link_bandwidth=300e9,  # only with the optional bridge
        linked=2,
        measured_matmul_flops=252.9e12,
    ),
)
