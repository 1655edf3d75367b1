"""What is planned: a model, where, with which software, and the setups that it may have."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from perfsuite.catalog.cell import Hardware
from perfsuite.catalog.definitions import Device
from perfsuite.errors import Refused, UsageError
from perfsuite.features.predict.overhead import overhead
from perfsuite.features.predict.plan.layout_names import ALL, RECOMPUTE, SHARDED, fields_of
from perfsuite.features.predict.plan.planned import Planned
from perfsuite.features.predict.plan.room import capacity
from perfsuite.features.predict.time.constants import Constants, constants_of, machine_of
from perfsuite.features.predict.time.pipeline_fill import ENDS
from perfsuite.features.predict.time.setup import MachineSetup, Setup
from perfsuite.features.predict.time.shape import Shape
from perfsuite.features.predict.time.software import Software, check_precision, half, software
from perfsuite.features.predict.time.step import Breakdown, step

MOST_IN_A_NODE = 16  # devices: DGX-2
COMPILED = "maxtext"  # the software of devices that take compiled steps alone
BATCH_TOKENS = 2**22  # usual for large models: 3.2 million for GPT-3 (arXiv 2005.14165, table 2.1), 4 for Llama
HOST_MEMORY = 2.0**40  # of a node: DGX A100 has 1 or 2 TiB


@dataclass(frozen=True, kw_only=True)
class StepWish:
    """What is asked of a step. ``samples`` are those of a global batch, by default the usual number. ``stack`` and
    ``precision`` are by default the usual ones, ``options`` those of ``--set``. ``node_network`` is a node's rate in
    bytes per second, ``latency`` a factor of NCCL's latencies between nodes, and ``host_memory`` a node's bytes.
    """

    samples: int | None = None
    stack: str = ""
    precision: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    node_network: float | None = None
    latency: float = 1.0
    host_memory: float = HOST_MEMORY


@dataclass(frozen=True, kw_only=True)
class PlanQuestion:
    """What is planned: a model, where, and the samples of a global batch. ``options`` are those of ``--set``."""

    shape: Shape
    device: Device
    machine: MachineSetup
    constants: Constants
    ranks: int
    sequence: int
    target: int
    samples: int
    software: Software
    precision: str
    options: Mapping[str, str] = field(default_factory=dict)
    host_memory: float = HOST_MEMORY

    @property
    def room(self) -> float:
        """The bytes that the allocator may reserve."""
        return self.machine.memory_bytes - sum(overhead(self.device, self.ranks).values())

    @property
    def capacity(self) -> float:
        """The bytes that tensors may fill."""
        return capacity(self.room)

    def nodes_of(self, setup: Setup) -> int:
        """The nodes that a setup fills."""
        return -(-setup.ranks // self.machine.node)

    def made(self, **given: Any) -> Setup:
        """A setup of this question's lengths, precision, software and options. Raises UsageError."""
        lengths = {"sequence": self.sequence, "target": self.target, "precision": self.precision}
        routed = any(stack.experts for stack in self.shape.stacks)
        return self.software.setup(self.device, self.options, routed, **lengths, **given)

    def setup(self, layout: str) -> Setup:
        """The setup of a layout in words. Raises UsageError for one that does not divide the batch, the model or the
        ranks, and for one that the software does not have.
        """
        found = self.made(**fields_of(layout, self.samples))
        if reason := self._why_not(found):
            raise UsageError(f"--layout {layout!r}: {reason}.")
        return found

    def _why_not(self, setup: Setup) -> str:
        """Why no run can have the setup; empty if one can."""
        one, stacks = setup.layout, self.shape.stacks
        if self.ranks and setup.ranks != self.ranks:
            return f"its widths make {setup.ranks} ranks, and there are {self.ranks}"
        known = self.software.has | self.software.asked
        if lacking := [name for name in parts_of(setup) if name not in known]:
            return f"{self.software.name} has no {lacking[0]}; it has {', '.join(sorted(known))}"
        if any(stack.heads % one.tensor for stack in stacks):
            return f"tp{one.tensor} does not divide {stacks[-1].heads} heads"
        if setup.experts > 1 and not any(
            stack.experts and stack.experts.count % setup.experts == 0 for stack in stacks
        ):
            return f"ep{setup.experts} does not divide the model's experts"
        if setup.expert_tensor > 1 and not any(stack.experts for stack in stacks):
            return f"etp{setup.expert_tensor} divides experts, and the model has none"
        if one.pipeline * setup.interleave > self.shape.layers + ENDS:
            return f"pp{one.pipeline} v{setup.interleave} needs more than {self.shape.layers} layers"
        return ""

    def step(self, setup: Setup) -> Breakdown:
        """The predicted step of a setup."""
        return step(self.shape, setup, self.machine, self.constants)


def question(model: Planned, device: Device, machine: MachineSetup, ranks: int, wish: StepWish) -> PlanQuestion:
    """The question of a model on ``ranks`` devices in such nodes; 0 ranks: as many as a layout has.

    Raises Refused for a device without constants, UsageError for an option.
    """
    one = software(wish.stack or usual(model.shape, device, machine.node, wish.options))
    if device.topology and one.name != COMPILED:
        raise UsageError(f"--stack {one.name} is for GPUs: {device.name} is planned with {COMPILED}.")
    precision = wish.precision or str(one.does.get("precision", half(device)))
    check_precision(one, precision, device)
    return PlanQuestion(
        shape=model.shape,
        device=device,
        machine=machine,
        constants=constants_of(device, one.name),
        ranks=ranks,
        sequence=model.sequence,
        target=model.target,
        samples=samples_of(wish.samples, model.sequence, ranks),
        software=one,
        precision=precision,
        options=wish.options,
        host_memory=wish.host_memory,
    )


def usual(shape: Shape, device: Device, node: int, options: Mapping[str, str]) -> str:
    """The software that people train such a model with on such devices.

    An encoder with a decoder, cards without a link of all of a node's, and adapters of weights in few bits are trained
    with transformers and DeepSpeed. Other models are trained with Megatron-core; devices older than A100 with
    Megatron-LM of their time, and TPUs with MaxText.
    """
    if device.topology:
        return COMPILED
    linked = device.link_bandwidth and (not device.linked or node <= device.linked)
    if shape.encodes or shape.classifies or not linked or options.get("base", "bf16") != "bf16":
        return "deepspeed"
    return "megatron" if half(device) == "fp16" else "megatron_core"


def on_hardware(model: Planned, hardware: Hardware, wish: StepWish) -> PlanQuestion:
    """The question of a model on some hardware. Raises Refused for a CPU, for a node that nobody has and for a device
    without a closed form, UsageError for an option.
    """
    if hardware.device is None:
        raise Refused("No time is predicted for a CPU: name a device and its nodes, e.g. --hardware a100_80g_x8n16.")
    device, ranks = hardware.device, hardware.ranks
    if ranks > max(MOST_IN_A_NODE, device.domain):
        usual = f"{device.name}_x8n{-(-ranks * hardware.nodes // 8)}"
        raise Refused(f"No node has {ranks} {device.name}: write {usual} for nodes of eight.")
    network = wish.node_network / ranks if wish.node_network else None
    return question(model, device, machine_of(device, network, ranks, wish.latency), hardware.world_size, wish)


def parts_of(setup: Setup) -> list[str]:
    """The dimensions and techniques of a setup, by the names of ``Software.has``."""
    layout = setup.layout
    used = {
        "tensor": layout.tensor > 1,
        "pipeline": layout.pipeline > 1,
        "interleave": setup.interleave > 1,
        "context": setup.context > 1,
        "experts": setup.experts > 1,
        "offload": setup.offload,
        "hybrid": layout.replicas > 1 and layout.shards > 1 and setup.sharded == ALL,
    }
    used |= {word: setup.sharded == sharded for word, sharded in SHARDED.items()}
    used |= {word: setup.recompute == kind for word, kind in RECOMPUTE.items()}
    return [name for name, is_used in used.items() if is_used]


def samples_of(samples: int | None, sequence: int, ranks: int) -> int:
    """The global batch: as asked, or 4 Mi tokens, rounded up to a multiple of the ranks."""
    return samples or -(-max(1, BATCH_TOKENS // sequence) // ranks) * ranks
