"""The constants of the closed form for a device and a software stack, and how far they can be trusted.

``fitted.toml`` has those that were fitted, with their rows. ``published.toml`` has measurements of others. A
generation or a stack without rows borrows the nearest fitted one: its predictions are then of a new regime, whose
interval is wider (regimes.py).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from perfsuite.catalog.definitions import Device
from perfsuite.errors import Refused
from perfsuite.features.predict.time import fitted
from perfsuite.features.predict.time.setup import MachineSetup

# Compute capability (whole part) to the generation whose constants apply; AMD's and Google's devices by their names.
GENERATIONS = {7: "ampere", 8: "ampere", 9: "hopper", 10: "blackwell", 12: "ampere"}
ULTRA = 10.3  # compute capability of Blackwell Ultra, whose higher power limit lets products run faster
# No row of AMD's was fitted: the nearest in age.
NAMED = {"mi300x": "hopper", "mi355x": "blackwell", **dict.fromkeys(("tpu_v5e", "tpu_v5p", "tpu_v6e", "tpu_7x"), "tpu")}
# How much longer than the others' hosts Grace takes to launch a layer: the tiny models of Megatron-LM's tests take 1.45
# times as long on GB200 as on H100 (benchmarks/published/times/notes.md).
GRACE = 1.45
# Between nodes rings reach so much of the cards' rate from 1 GiB on: published.toml has the source.
NETWORK = 0.75
# Cards that may not read each other's memory send through the host's: written there and read again, so that half of
# PCIe's rate is left at best (docs.nvidia.com, NCCL, "Troubleshooting", shared memory transport).
THROUGH_HOST = 0.5
UNMEASURED_LOW = 0.73  # of the peak, for products in few bits that nobody has measured: the median of those measured
PUBLISHED: dict[str, dict[str, Any]] = msgspec.toml.decode(Path(__file__).with_name("published.toml").read_bytes())
MULTIPROCESSORS: dict[str, int] = PUBLISHED["multiprocessors"]
# Software whose layers have all pointwise kernels fused as costs.outside_bytes and costs.inside_bytes count them:
# Transformer Engine's norms beside their products, and jitted kernels for bias, dropout, residual sum and activation.
FUSED = frozenset({"megatron_core", "megatron", "megatron_deepspeed", "automodel", "maxtext"})
UNMEASURED_MATMUL = 0.8  # of the peak, for devices without a published matmul: most of those published are 0.76 to 0.87
# Bytes per second and device in usual nodes: DGX-2, A100, H100, B200. A GB300 has cards of 800 Gbit/s.
NODE_NETWORK = {0: 50e9, 7: 12.5e9, 8: 25e9, 9: 50e9, 10: 50e9, 12: 12.5e9}


@dataclass(frozen=True, kw_only=True)
class Constants:
    """Shares of a device's rates (0 to 1), two factors, and seconds.

    ``matmul`` is of the best measured matmul. ``fp4`` multiplies that share for products in so few bits, which need
    less power. ``attention``, ``flash`` and ``attention3`` are of the peak, ``memory``, ``link`` and ``network`` of
    their bandwidths. ``start`` and ``hop`` are seconds of a message and of a step inside a node. ``crossing`` is of
    the network, where the rings of several groups meet. ``overlap`` is how much of the shorter of computation and
    message is hidden. ``traffic`` multiplies the bytes of elementwise kernels: 1 if all are fused. ``gap`` is what a
    kernel needs besides its work: to start, to fill the device, and to drain. ``jitter`` is the deviation of a node's
    step. ``scan`` multiplies the bytes of recurrences, ``permute`` those of bringing tokens into their experts'
    order. ``launch_layer`` is the host's time for a layer, ``launch_experts`` a factor of it, ``launch_stage`` that
    for a stage's sends. The device waits ``launch_expert`` for each own expert.
    """

    matmul: float
    attention: float
    flash: float
    attention3: float
    memory: float
    link: float
    network: float
    start: float
    hop: float
    overlap: float
    traffic: float
    gap: float
    launch_layer: float
    launch_stage: float = 0.0
    fp4: float = 1.0
    scan: float = 1.0
    permute: float = 1.0
    launch_expert: float = 0.0
    crossing: float = 1.0
    jitter: float = 0.0
    launch_experts: float = 1.0


def generation_of(device: Device) -> str:
    """The generation whose constants a device uses. Raises Refused for one without."""
    generation = NAMED.get(device.name) or GENERATIONS.get(int(device.compute_capability or 0))
    if generation is None or device.name not in MULTIPROCESSORS:
        raise Refused(f"No time is predicted for {device.name}: known are {', '.join(sorted(MULTIPROCESSORS))}.")
    return generation


def machine_of(device: Device, network: float | None = None, node: int = 8, latency: float = 1.0) -> MachineSetup:
    """The machine of ``node`` devices; ``network`` is a device's share of the node's network in bytes per second,
    ``latency`` the factor of the latency between nodes.

    Raises Refused for a device without constants.
    """
    generation_of(device)
    peak = device.dense_flops.get("bf16") or device.dense_flops["fp16"]
    linked = device.link_bandwidth if not device.linked or node <= device.linked else 0.0
    bus = device.host_bandwidth * (1.0 if device.peers else THROUGH_HOST)
    fp8, fp4 = device.dense_flops.get("fp8", 0.0), device.dense_flops.get("fp4", 0.0)
    return MachineSetup(
        name=device.name,
        flops=peak,
        matmul_flops=device.measured_matmul_flops or PUBLISHED["matmul"].get(device.name, UNMEASURED_MATMUL) * peak,
        memory_bandwidth=device.memory_bandwidth,
        memory_bytes=device.usable_bytes,
        link_bandwidth=linked or bus,
        network_bandwidth=network or device.network or NODE_NETWORK[int(device.compute_capability or 0)],
        host_bandwidth=device.host_bandwidth,
        multiprocessors=MULTIPROCESSORS[device.name],
        node=node,
        network_latency=latency,
        fp8_flops=PUBLISHED["fp8"].get(device.name, UNMEASURED_LOW * fp8),
        fp4_flops=UNMEASURED_LOW * fp4,
        domain=max(node, device.domain),
    )


def constants_of(device: Device, stack: str, values: dict[str, dict[str, float]] | None = None) -> Constants:
    """The constants of a device and a stack. An unknown stack gets the mean launch times of the fitted ones.

    ``values`` are other fitted values than those of ``fitted.toml``: a fit tries them.
    """
    found = values or fitted.VALUES
    generation = generation_of(device)
    ultra = found.get("ultra", {}) if device.compute_capability == ULTRA else {}
    shares = {**found["hopper"], **found.get(generation, {}), **ultra}
    if sustained := PUBLISHED["sustained"].get(device.name):
        assert device.measured_matmul_flops
        shares["matmul"] = sustained / device.measured_matmul_flops
    launches: dict[str, Any] = dict(found.get(stack) or _mean(found))
    launches["launch_layer"] *= GRACE if device.domain else 1.0
    published = PUBLISHED["generations"][generation]
    published = published | PUBLISHED["devices"].get(device.name, {})
    everywhere = dict(found["all"])
    fused = everywhere.pop("traffic_fused", 1.0)
    everywhere["traffic"] = fused if stack in FUSED else everywhere["traffic"]
    return Constants(network=NETWORK, **(published | everywhere | shares | launches))


def _mean(found: dict[str, dict[str, float]]) -> dict[str, float]:
    """The mean launch times of all stacks."""
    stacks = [one for one in found.values() if "launch_layer" in one]
    return {
        name: sum(stack.get(name, 0.0) for stack in stacks) / len(stacks) for name in ("launch_layer", "launch_stage")
    }
