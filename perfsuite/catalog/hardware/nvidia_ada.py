"""NVIDIA Ada: the L4 (72 W) and the L40S, cards without NVLink. Their datasheets print tensor rates with sparsity.

Sources: NVIDIA L4 and L40S datasheets; L4 peaks compared with Lightning's fabric/utilities/throughput.py, the L40S's
with torchtitan's tools/utils.py (which looks for "l40s" in lower case, and so never finds it) and
compute/accelerator/README.md of stas00/ml-engineering. PCIe is gen 4 x16: 31.5 GB/s in one direction.
"""

from perfsuite.catalog.definitions import Device

DEVICES = (
    Device(
        name="l4",
        matches=("nvidia l4",),  # occurs in "NVIDIA L40S" too: the memory tells them apart
        memory_bytes=23_034 * 2**20,  # nvidia-smi, ECC on
        reserved_bytes=476 * 2**20,  # torch sees 22.03 GiB (ArcInstitute/evo2 #190)
        compute_capability=8.9,
        # torch._inductor.analysis.device_info has had 3350 GB/s for it, the H100's.
        memory_bandwidth=300e9,
        dense_flops={"fp32": 30.3e12, "tf32": 60e12, "fp16": 121e12, "bf16": 121e12, "fp8": 242.5e12},
        link_bandwidth=0,
        host_bandwidth=31.5e9,
        source="NVIDIA L4 datasheet, halved: it counts sparsity",
    ),
    Device(
        name="l40s",
        matches=("nvidia l40s",),
        memory_bytes=46_068 * 2**20,  # nvidia-smi, ECC on
        reserved_bytes=582 * 2**20,  # torch sees 44.42 GiB (stepfun-ai/Step-Video-T2V #8)
        compute_capability=8.9,
        memory_bandwidth=864e9,
        dense_flops={"fp32": 91.6e12, "tf32": 183e12, "fp16": 362e12, "bf16": 362e12, "fp8": 733e12},
        link_bandwidth=0,
        host_bandwidth=31.5e9,
        source="NVIDIA L40S datasheet",
    ),
)
