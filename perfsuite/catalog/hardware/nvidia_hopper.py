"""NVIDIA Hopper: H100 as a module and as a PCIe card, and H200, the same module with more and faster memory.

Sources: NVIDIA H100 and H200 datasheets, whose tensor rates count sparsity and are halved here, as in
composer/callbacks/speed_monitor.py of mosaicml/composer, Lightning's fabric/utilities/throughput.py and torchtitan's
tools/utils.py; NVLink and the measured matmul from the network and compute/accelerator READMEs of
stas00/ml-engineering. PCIe is gen 5 x16: 63 GB/s in one direction.
"""

from perfsuite.catalog.definitions import Device

# The datasheet's 1,979 for bf16 is with sparsity; training is dense.
_SXM = {"fp32": 67e12, "tf32": 494.7e12, "fp16": 989.4e12, "bf16": 989.4e12, "fp8": 1_978.9e12}

DEVICES = (
    Device(
        name="h100",
        matches=("nvidia h100", "80gb", "hbm3"),
        memory_bytes=81_559 * 2**20,  # nvidia-smi
        reserved_bytes=551 * 2**20,  # torch sees 79.11 GiB (vllm-project/vllm #27508)
        compute_capability=9.0,
        memory_bandwidth=3_350e9,
        dense_flops=_SXM,
        link_bandwidth=450e9,  # NVLink 4; the datasheet's 900 counts both directions
        host_bandwidth=63e9,
        source="NVIDIA H100 datasheet, halved: it counts sparsity",
        measured_matmul_flops=794.5e12,
    ),
    Device(
        name="h100_pcie",
        matches=("nvidia h100", "pcie"),
        memory_bytes=81_559 * 2**20,  # nvidia-smi
        reserved_bytes=551 * 2**20,  # as of the module
        compute_capability=9.0,
        memory_bandwidth=2_000e9,
        # 114 of the module's 132 multiprocessors, at a lower clock
        dense_flops={"fp32": 51e12, "tf32": 378e12, "fp16": 756e12, "bf16": 756e12, "fp8": 1_513e12},
        link_bandwidth=300e9,  # only with the optional bridge
        linked=2,
        host_bandwidth=63e9,
        source="NVIDIA H100 datasheet, halved: it counts sparsity",
    ),
    Device(
        name="h200",
        matches=("nvidia h200",),  # with the vendor: "NVIDIA GH200" is another device
        excludes=("nvl",),
        memory_bytes=143_771 * 2**20,  # nvidia-smi
        reserved_bytes=616 * 2**20,  # torch sees 139.8 GiB
        compute_capability=9.0,
        memory_bandwidth=4_800e9,
        dense_flops=_SXM,
        link_bandwidth=450e9,  # NVLink 4; the datasheet's 900 counts both directions
        host_bandwidth=63e9,
        source="NVIDIA H200 datasheet, halved: it counts sparsity",
        measured_matmul_flops=794.5e12,  # the H100's: the same chip at the same power
    ),
)
