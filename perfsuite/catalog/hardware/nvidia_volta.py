"""NVIDIA Volta: the V100 with 32 GB, as a module on NVLink 2 and as a PCIe card. fp16 tensor cores, no bf16 or tf32.

Sources: NVIDIA V100 datasheet (1165301); peaks as in composer/callbacks/speed_monitor.py of mosaicml/composer and in
fabric/utilities/throughput.py of Lightning; NVLink from network/README.md of stas00/ml-engineering; the measured
matmul from stas00's transformers-benchmarks. PCIe is gen 3 x16: 15.8 GB/s in one direction.
"""

from perfsuite.catalog.definitions import Device

DEVICES = (
    Device(
        name="v100_32g",
        matches=("v100", "sxm2", "32gb"),
        memory_bytes=32_768 * 2**20,  # nvidia-smi
        reserved_bytes=258 * 2**20,  # torch sees 32,510 MiB
        compute_capability=7.0,
        memory_bandwidth=900e9,
        dense_flops={"fp32": 15.7e12, "fp16": 125e12},
        link_bandwidth=150e9,  # six links of 25 GB/s; the datasheet's 300 counts both directions
        host_bandwidth=15.8e9,
        source="NVIDIA V100 datasheet",
        measured_matmul_flops=95e12,  # fp16
    ),
    Device(
        name="v100_pcie_32g",
        matches=("v100-pcie", "32gb"),  # with the dash: the V100S-PCIE is a faster card
        memory_bytes=32_768 * 2**20,  # nvidia-smi
        reserved_bytes=258 * 2**20,  # torch sees 32,510 MiB
        compute_capability=7.0,
        memory_bandwidth=900e9,
        dense_flops={"fp32": 14e12, "fp16": 112e12},
        link_bandwidth=0,
        host_bandwidth=15.8e9,
        source="NVIDIA V100 datasheet",
    ),
)
