"""AMD Instinct: MI250X (CDNA 2) and MI300X (CDNA 3).

An MI250X is two dies (GCDs), each a device of its own to torch: everything here is for one of them, half of the
datasheet's figure.

Sources: AMD Instinct MI250X and MI300X datasheets; peaks compared with torchtitan's tools/utils.py (which counts per
die too) and torch._inductor.analysis.device_info; links and the measured matmul from the network and
compute/accelerator READMEs of stas00/ml-engineering. Host links are PCIe x16, gen 4 and 5; those of the MI250X are
recalled.
"""

from perfsuite.catalog.definitions import Device

DEVICES = (
    Device(
        name="mi250x",
        matches=("instinct mi250x",),
        memory_bytes=65_520 * 2**20,  # rocm-smi
        memory_bandwidth=1_638e9,
        # fp32 in the matrix cores (95.7 for both dies), which matmuls use; the vector units have half of it.
        dense_flops={"fp32": 47.85e12, "fp16": 191.5e12, "bf16": 191.5e12},
        # Half of 350 for the package. The links are unequal: 200 GB/s to the neighbouring die, 50 or 100 to the others.
        link_bandwidth=175e9,
        host_bandwidth=31.5e9,
        source="AMD Instinct MI250X datasheet, halved: per die",
    ),
    Device(
        name="mi300x",
        matches=("instinct mi300x",),
        memory_bytes=196_592 * 2**20,  # rocm-smi
        memory_bandwidth=5_300e9,
        dense_flops={"fp32": 163.4e12, "tf32": 653.7e12, "fp16": 1_307.4e12, "bf16": 1_307.4e12, "fp8": 2_614.9e12},
        link_bandwidth=448e9,  # seven links of 64 GB/s, one to each other device of the node
        host_bandwidth=63e9,
        source="AMD Instinct MI300X datasheet",
        measured_matmul_flops=668.4e12,
    ),
)
