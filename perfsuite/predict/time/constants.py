"""The constants of the closed form for a device and a software stack, and how far they can be trusted.

``fitted.toml`` has those that were fitted, with their rows. The others are measurements that others published. A
generation or a stack without rows borrows the nearest fitted one: its predictions are then of the regime
"transferred", whose interval is wider.
"""

from dataclasses import dataclass
from typing import Any

from perfsuite.catalog.definitions import Device
from perfsuite.errors import Refused
from perfsuite.predict.time import fitted
from perfsuite.predict.time.setup import Machine

# Compute capability (whole part) to the generation whose constants apply.
GENERATIONS = {7: "ampere", 8: "ampere", 9: "hopper", 10: "blackwell"}
BORROWED = {"blackwell": "hopper"}  # no row of a Blackwell device was fitted: shares of its rates are Hopper's
# Collectives in one node: the share of NVLink's rate that many ranks would reach, and the seconds of a message and of a
# step of its ring. A100: 77 points of 2 to 8 ranks, 1 MiB to 1 GiB (VIA-Research/vTrain, trace/a100), mean error 5 %.
# H200: rings of 8 ranks reach 361 to 368 of 450 GB/s, 15/16 of the share; 32 KiB take 40 µs, as NCCL's table for LL128
# says (14 µs and 1.9 µs per step). B200: 13 points of 8 ranks, 1 MiB to 4 GiB, mean error 13 %, and 3 % from 128 MiB
# on. Between nodes 73 to 80 % of the cards' rate from 1 GiB on. H200, B200 and nodes: network/README.md and
# network/benchmarks/README.md of stas00/ml-engineering at 744d01e. benchmarks/published/times/all_reduce.csv has the
# points.
LINK = {"ampere": 0.80, "hopper": 0.86, "blackwell": 0.85}
START = {"ampere": 30e-6, "hopper": 14e-6, "blackwell": 38e-6}
HOP = {"ampere": 3.4e-6, "hopper": 1.9e-6, "blackwell": 2.8e-6}
NETWORK = 0.75
# cuDNN's attention, forward and backward, as a share of the peak: bf16, 4,096 tokens, causal, 64 heads of 128. Forward
# and backward reach 174 and 128 TFLOP/s on an A100 (PCIe; more by 271/253, the ratio of the best matmuls), 616 and 495
# on an H200, 1,319 and 1,102 on a GB200 of 2,500; 2.5 of 3.5 FLOPs are backward's. September 2026, in
# benchmark/attention_training/results/llama3.1 of NVIDIA/cudnn-frontend at 816ea4573a and d6d35d6927.
ATTENTION3 = {"ampere": 0.48, "hopper": 0.53, "blackwell": 0.46}
MULTIPROCESSORS = {  # the architectures' whitepapers
    "t4": 40, "v100_32g": 80, "v100_pcie_32g": 80, "a100_40g": 108, "a100_80g": 108, "a100_pcie_80g": 108,
    "rtx3090": 82, "a10g": 80, "a6000": 84, "l4": 58, "l40s": 142, "h100": 132, "h100_pcie": 114, "h200": 132,
    "b200": 148,
}  # fmt: skip
# Software whose layers have all pointwise kernels fused as costs.elementwise_bytes counts them: Transformer Engine's
# norms beside their products, and jitted kernels for bias, dropout, residual sum and activation.
FUSED = frozenset({"megatron_core"})
UNMEASURED_MATMUL = 0.8  # of the peak, for devices without a published matmul: most of those published are 0.76 to 0.87
NODE_NETWORK = {7: 12.5e9, 8: 25e9, 9: 50e9, 10: 50e9}  # bytes/s per device in usual nodes: DGX-2, A100, H100, B200


@dataclass(frozen=True, kw_only=True)
class Constants:
    """Shares of a device's rates (0 to 1), two factors, and seconds.

    ``matmul`` is of the best measured matmul, ``attention`` and ``attention3`` of the peak, ``memory``, ``link`` and
    ``network`` of their bandwidths. ``start`` and ``hop`` are seconds of a message and of a step inside a node.
    ``overlap`` is how much of the shorter of computation and message is hidden. ``traffic`` multiplies the bytes of
    elementwise kernels: 1 if all are fused. ``launch_layer`` is the host's time for a layer's forward and backward,
    ``launch_stage`` for a stage's sends.
    """

    matmul: float
    attention: float
    attention3: float
    memory: float
    link: float
    network: float
    start: float
    hop: float
    overlap: float
    traffic: float
    handover: float
    launch_layer: float
    launch_stage: float


def generation_of(device: Device) -> str:
    """The generation whose constants a device uses. Raises Refused for one that is not NVIDIA's."""
    generation = GENERATIONS.get(int(device.compute_capability or 0))
    if generation is None or device.name not in MULTIPROCESSORS:
        raise Refused(f"No time is predicted for {device.name}: known are {', '.join(sorted(MULTIPROCESSORS))}.")
    return generation


def machine_of(device: Device, network: float | None = None, node: int = 8, latency: float = 1.0) -> Machine:
    """The machine of ``node`` devices; ``network`` is a device's share of the node's network in bytes per second,
    ``latency`` the factor of the latency between nodes.

    Raises Refused for a device without constants.
    """
    generation_of(device)
    peak = device.dense_flops.get("bf16") or device.dense_flops["fp16"]
    linked = device.link_bandwidth if not device.linked or node <= device.linked else 0.0
    return Machine(
        name=device.name,
        flops=peak,
        matmul_flops=device.measured_matmul_flops or UNMEASURED_MATMUL * peak,
        memory_bandwidth=device.memory_bandwidth,
        memory_bytes=device.usable_bytes,
        link_bandwidth=linked or device.host_bandwidth,
        network_bandwidth=network or NODE_NETWORK[int(device.compute_capability or 0)],
        host_bandwidth=device.host_bandwidth,
        multiprocessors=MULTIPROCESSORS[device.name],
        node=node,
        network_latency=latency,
    )


def constants_of(device: Device, stack: str, values: dict[str, dict[str, float]] | None = None) -> Constants:
    """The constants of a device and a stack. An unknown stack gets the mean launch times of the fitted ones.

    ``values`` are other fitted values than those of ``fitted.toml``: a fit tries them.
    """
    found = values or fitted.VALUES
    generation = generation_of(device)
    shares = found[BORROWED.get(generation, generation)]
    launches: dict[str, Any] = found.get(stack) or _mean(found)
    links = {"link": LINK[generation], "network": NETWORK, "start": START[generation], "hop": HOP[generation]}
    everywhere = {**found["all"], "traffic": 1.0} if stack in FUSED else found["all"]
    return Constants(attention3=ATTENTION3[generation], **links, **shares, **everywhere, **launches)


def _mean(found: dict[str, dict[str, float]]) -> dict[str, float]:
    """The mean launch times of all stacks."""
    stacks = [one for one in found.values() if "launch_layer" in one]
    return {name: sum(one[name] for one in stacks) / len(stacks) for name in ("launch_layer", "launch_stage")}


HOST_BOUND = 0.05  # of a step that waits for the host: from here on the host's constants decide


def regime(device: Device, stack: str, nodes: int, host_share: float) -> str:
    """The rows whose errors tell how good a prediction is.

    "calibrated" if rows of this device and stack, on one node, were fitted; otherwise "transferred". "host-bound" is
    added if the step waits for the host to launch kernels, ``host_share`` of its time.
    """
    known = (device.name, stack) in fitted.PAIRS and nodes == 1
    return ("calibrated" if known else "transferred") + (", host-bound" if host_share > HOST_BOUND else "")


def interval(seconds: float, regime: str) -> tuple[float, float]:
    """The seconds between which 90 % of the regime's measurements were, predicted by constants without them."""
    low, high = fitted.ERRORS[regime]
    return seconds * low, seconds * high
