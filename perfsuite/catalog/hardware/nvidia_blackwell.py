"""NVIDIA Blackwell: the B200 module of an HGX or DGX node.

Sources: NVIDIA Blackwell datasheet, column HGX B200, whose tensor rates count sparsity and are halved here; peaks
compared with torchtitan's tools/utils.py; NVLink and the measured matmul from the network and compute/accelerator
READMEs of stas00/ml-engineering. PCIe is gen 5 x16: 63 GB/s in one direction.
"""

from perfsuite.catalog.definitions import Device

DEVICES = (
    Device(
        name="b200",
        matches=("nvidia b200",),  # with the vendor: "NVIDIA GB200" is another device
        memory_bytes=183_359 * 2**20,  # nvidia-smi
        reserved_bytes=717 * 2**20,  # CUDA sees 182,642 MiB
        compute_capability=10.0,
        memory_bandwidth=7_700e9,  # announced as 8 TB/s, and still given so in places
        # fp32 was announced as 80; the datasheet says 75, and 148 multiprocessors of 128 lanes at 1.965 GHz give 74.5.
        dense_flops={"fp32": 75e12, "tf32": 1_125e12, "fp16": 2_250e12, "bf16": 2_250e12, "fp8": 4_500e12},
        link_bandwidth=900e9,  # NVLink 5; the datasheet's 1.8 TB/s counts both directions
        host_bandwidth=63e9,
        source="NVIDIA Blackwell datasheet, halved: it counts sparsity",
        measured_matmul_flops=1_745e12,
    ),
)
