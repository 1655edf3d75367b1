"""A kind of accelerator, as the catalog's files define it."""

from collections.abc import Mapping
from dataclasses import dataclass

DEDICATED_TIME_TOLERANCE = 0.02  # an accelerator without other users, its clocks locked
CPU_TIME_TOLERANCE = 0.03  # a CPU's clocks cannot be locked, and other processes share its caches


@dataclass(frozen=True, kw_only=True)
class Device:
    """Facts of one kind of accelerator: bytes, FLOP/s (dense, never with sparsity) and bytes per second.

    ``dense_flops`` maps a dtype ("fp32", "tf32", "fp16", "bf16", "fp8", "fp4") to the datasheet's dense peak; a missing
    dtype is not supported in hardware. ``link_bandwidth`` is one direction, per device, between devices of a node (0:
    none).
    ``linked`` is how many devices such a link joins at most, as a bridge between two cards does (0: all of a node).
    ``matches`` are lower-case fragments that all occur in the driver's name for it, and none of ``excludes`` does.
    ``memory_bytes`` is the driver's figure, which tells devices of one name apart. CUDA keeps ``reserved_bytes`` of
    them for itself, as the totals in torch's out-of-memory errors show (0: none published). ``time_tolerance`` is the
    smallest relative slow-down that must be detected on a dedicated machine with locked clocks. ``domain`` is how many
    devices such a link joins over several nodes, as in a rack (0: those of a node alone). ``peers``: devices of a node
    may read each other's memory over PCIe. ``network`` is a device's share of a node's usual network (0: the usual one
    of its generation). ``topology``: what XLA's compiler calls a slice of them, with a place for each dimension.
    """

    name: str
    matches: tuple[str, ...]
    memory_bytes: int
    memory_bandwidth: float
    dense_flops: Mapping[str, float]
    link_bandwidth: float
    host_bandwidth: float
    source: str
    linked: int = 0
    compute_capability: float | None = None  # NVIDIA's, by which torch selects kernels
    measured_matmul_flops: float | None = None  # the best published bf16 (fp16 before Ampere) matmul
    reserved_bytes: int = 0
    time_tolerance: float = DEDICATED_TIME_TOLERANCE
    excludes: tuple[str, ...] = ()
    domain: int = 0
    peers: bool = True
    network: float = 0.0
    topology: str = ""

    @property
    def usable_bytes(self) -> int:
        """The memory that torch sees."""
        return self.memory_bytes - self.reserved_bytes
