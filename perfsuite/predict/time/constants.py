"""What was fitted: shares of a device's rates by generation, and the host's time by software stack.

Written by ``python benchmarks/time_fit.py --write``.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Constants:
    """Shares of a rate (0 to 1), seconds, and two factors."""

    matmul: float = 0.85
    attention: float = 0.5
    memory: float = 0.8
    link: float = 0.78
    network: float = 0.75
    overlap: float = 0.8
    traffic: float = 1.0
    launch_layer: float = 0.0
    launch_stage: float = 0.0


MULTIPROCESSORS = {  # NVIDIA's whitepapers of each architecture
    "t4": 40, "v100_32g": 80, "v100_pcie_32g": 80, "a100_40g": 108, "a100_80g": 108, "a100_pcie_80g": 108,
    "rtx3090": 82, "a10g": 80, "a6000": 84, "l4": 58, "l40s": 142, "h100": 132, "h100_pcie": 114, "h200": 132,
    "b200": 148,
}  # fmt: skip
from perfsuite.catalog.definitions import Device
from perfsuite.predict.time.setup import Machine
def machine_of(device, network, node=8):
    peak = device.dense_flops.get("bf16") or device.dense_flops["fp16"]
    return Machine(name=device.name, flops=peak, matmul_flops=device.measured_matmul_flops or 0.8*peak, memory_bandwidth=device.memory_bandwidth, memory_bytes=device.usable_bytes, link_bandwidth=device.link_bandwidth, network_bandwidth=network, host_bandwidth=device.host_bandwidth, multiprocessors=MULTIPROCESSORS[device.name], node=node)
