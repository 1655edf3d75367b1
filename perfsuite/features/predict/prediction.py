"""Predictions of what was not run: the memory and the step time of cells, and the step time of layouts."""

from typing import Literal

from perfsuite.records.record import Record
from perfsuite.records.sample import Reading

WHOLE_STEP = "step"  # the phase of a peak whose step is one program


class HeldStorages(Record, frozen=True, kw_only=True):
    """Storages that are alive at a predicted peak, by operator and module: ``count`` storages of together ``bytes``."""

    category: str
    operator: str
    module: str
    count: int
    bytes: int


class Prediction(Record, frozen=True, kw_only=True):
    """The memory of a cell that was not run: that of its fullest rank, from a trace of its code. Never a Measurement.

    ``peak_bytes`` are live tensors, as requested, and the sum of ``parts``; ``ranks`` has the peaks of all traced
    ranks. ``allocated_bytes`` and ``reserved_bytes`` are what the device's caching allocator would report,
    ``smallest_bytes`` is the smallest capacity that suffices for it; all three are 0 for a CPU, whose allocator caches
    nothing, and for a compiled step, whose compiler places all buffers. ``setup_bytes`` is the most that building and
    preparing needed before the first step, ``host_bytes`` the most that a rank of a GPU has offloaded to host memory
    from then on. ``overhead`` is what a device needs outside of tensors. ``outcome`` is "fits", "oom" or "unsupported",
    with its ``reason``; on a CPU it is "fits" if no capacity is given. ``theory`` are the closed forms of the model
    state. ``curve`` is live memory over the last traced step: (phase, bytes by category in the order of
    ``categories``). ``readings`` are the peak and what a step computes and sends, with its operators, if that was
    counted.
    """

    format: int
    cell: str
    outcome: Literal["fits", "oom", "unsupported"]
    reason: str = ""
    world_size: int
    rank: int = 0
    phase: str = ""
    peak_bytes: int = 0
    parts: dict[str, int] = {}
    largest: dict[str, int] = {}
    ranks: dict[int, int] = {}
    allocated_bytes: int = 0
    reserved_bytes: int = 0
    smallest_bytes: int = 0
    setup_bytes: int = 0
    host_bytes: int = 0
    overhead: dict[str, int] = {}
    capacity_bytes: int | None = None
    theory: dict[str, int] = {}
    held: list[HeldStorages] = []
    categories: list[str] = []
    curve: list[tuple[str, list[int]]] = []
    readings: dict[str, Reading] = {}
    versions: dict[str, str] = {}
    seconds: float = 0.0
    rss_bytes: int = 0

    @property
    def needed_bytes(self) -> int:
        """The memory that the device must have to run the cell."""
        return (self.smallest_bytes or self.peak_bytes) + sum(self.overhead.values())


class Estimate(Record, frozen=True, kw_only=True):
    """The memory of a cell that was not traced whole: from traces of two shallow models. Never a Prediction.

    ``layers`` are those of the two. ``needed_bytes`` is what a device must have, ``host_bytes`` what a rank offloads to
    host memory. ``seconds`` are the processor's, of both traces.
    """

    cell: str
    outcome: Literal["fits", "oom"]
    world_size: int
    needed_bytes: int
    capacity_bytes: int
    host_bytes: int = 0
    layers: tuple[int, int]
    seconds: float = 0.0


class PredictedTime(Record, frozen=True, kw_only=True):
    """The predicted step of a cell, from closed forms. Never a Measurement. The fields are those of PlannedLayout.

    ``untimed`` names in a word what has no closed form: an engine, a technique, a model or a device. All else is then
    empty. ``predicted_tokens_per_second`` are those of all ranks.
    """

    cell: str
    untimed: str = ""
    predicted_step_seconds: float = 0.0
    low_seconds: float = 0.0
    high_seconds: float = 0.0
    regime: str = ""
    predicted_parts: dict[str, float] = {}
    predicted_tokens_per_second: float = 0.0
    predicted_mfu: float = 0.0
    predicted_hfu: float = 0.0


class PlannedLayout(Record, frozen=True, kw_only=True):
    """The predicted step of one layout, from closed forms of its time and of its memory. Never a Measurement.

    ``predicted_parts`` are seconds by cause, whose sum is ``predicted_step_seconds``. 90 % of measurements of the
    ``regime`` were between ``low_seconds`` and ``high_seconds``. MFU counts model FLOPs, HFU recomputed ones too.
    ``predicted_chance_to_fit`` is that of its memory, 0 to 1. ``loses_by`` is what makes it worse than the best layout.
    """

    layout: str
    pipeline: int
    data: int
    tensor: int
    interleave: int
    micro_batch: int
    accumulation: int
    recompute: str
    sharded: list[str]
    offload: bool
    predicted_bytes: int
    predicted_chance_to_fit: float
    predicted_step_seconds: float
    low_seconds: float
    high_seconds: float
    regime: str
    predicted_parts: dict[str, float]
    predicted_tokens_per_second: float
    predicted_mfu: float
    predicted_hfu: float
    loses_by: str = ""


class ClosedMemory(Record, frozen=True, kw_only=True):
    """The memory of a planned layout's fullest rank by the closed form, in bytes by part. Never a Prediction."""

    closed_bytes: int
    closed_parts: dict[str, int]


class TracedMemory(Record, frozen=True, kw_only=True):
    """The memory of the rank that needs most, by a trace of its code without the others, in bytes by part. Never a
    Measurement. ``micro_batches`` of the step were traced, and ``fits`` says whether it fits the device.
    """

    traced_bytes: int
    traced_parts: dict[str, int]
    rank: int
    micro_batches: int
    fits: bool
    seconds: float


class VerifiedLayout(Record, frozen=True, kw_only=True):
    """A planned layout beside a trace of the ``cell`` that is its code; ``not_traced`` is the reason if there is none.

    ``otherwise`` is what the traced code computes otherwise than the plan's software, by field of the closed form: what
    is traced, and what is planned. ``closed`` is the closed form of the traced code, and ``planned_bytes`` the plan's.
    """

    layout: str
    planned_bytes: int
    not_traced: str = ""
    cell: str = ""
    otherwise: dict[str, tuple[str, str]] = {}
    closed: ClosedMemory | None = None
    traced: TracedMemory | None = None

    @property
    def ratio(self) -> float | None:
        """Traced by closed form; None if it was not traced."""
        return self.traced.traced_bytes / self.closed.closed_bytes if self.traced and self.closed else None


class Plan(Record, frozen=True, kw_only=True):
    """The best layouts of a model on some hardware, best first; none if none fits. All of it is predicted.

    ``samples`` are the global batch. Of the ``tried`` layouts ``fitting`` fit, by a coarse closed form of memory; the
    smallest needs ``least_bytes`` of ``capacity_bytes``, and those that fit the devices ``least_host_bytes`` of a
    node's ``host_memory_bytes``. Times have the constants of the software ``stack``, which ``stack_says`` describes and
    which was assumed if it is ``stack_usual``. The model has ``parameters`` (0: not known); ``later_layers`` for
    multi-token prediction are not among them, and text passes no module of ``beside``. ``experts``: it has some. If
    nothing fits, ``other_stacks`` have a layout that does. ``days`` (low, predicted, high),
    ``gpu_hours`` and ``cost`` are of a training of ``tokens`` with the best one. ``verified`` are the first layouts
    beside their traces, if that was asked for.
    """

    format: int
    model: str
    hardware: str
    world_size: int
    sequence: int
    target: int
    samples: int
    tokens: int
    tried: int
    fitting: int
    least_bytes: int
    capacity_bytes: int
    layouts: list[PlannedLayout]
    least_host_bytes: int = 0
    host_memory_bytes: int = 0
    node_network_bytes_per_second: float = 0.0
    stack: str = ""
    stack_says: str = ""
    stack_usual: bool = False
    experts: bool = False
    parameters: int = 0
    active_parameters: int = 0
    later_layers: int = 0
    beside: list[str] = []
    other_stacks: list[str] = []
    precision: str = ""
    days: list[float] = []
    gpu_hours: list[float] = []
    cost: list[float] = []
    verified: list[VerifiedLayout] = []
