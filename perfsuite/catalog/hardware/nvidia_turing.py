"""NVIDIA Turing: the T4, the cheapest GPU in most clouds. It has tensor cores for fp16, none for bf16 or tf32.

Sources: NVIDIA T4 datasheet (951643); peaks as in composer/callbacks/speed_monitor.py of mosaicml/composer and in
fabric/utilities/throughput.py of Lightning. PCIe is gen 3 x16: 15.8 GB/s in one direction.
"""

from perfsuite.catalog.definitions import Device

DEVICES = (
    Device(
        name="t4",
        matches=("tesla t4",),
        memory_bytes=15_360 * 2**20,  # nvidia-smi; 15109 MiB by older drivers, which leave out their own share
        reserved_bytes=451 * 2**20,  # torch sees 14.56 GiB (Zheng-Chong/CatVTON #133)
        compute_capability=7.5,
        memory_bandwidth=320e9,
        dense_flops={"fp32": 8.1e12, "fp16": 65e12},
        link_bandwidth=0,
        host_bandwidth=15.8e9,
        source="NVIDIA T4 datasheet",
    ),
)
