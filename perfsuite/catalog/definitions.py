"""The types of the catalog, which definition files use. Data only; nothing here imports torch."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal

from perfsuite.catalog.processes import PROCESSES
from perfsuite.units import SECONDS, show

DEDICATED_TIME_TOLERANCE = 0.02  # an accelerator without other users, its clocks locked
CPU_TIME_TOLERANCE = 0.03  # a CPU's clocks cannot be locked, and other processes share its caches
HALF_PRECISION = frozenset({"fp16", "bf16", "pure_bf16", "fp8", "fp8_rowwise"})  # techniques: less than fp32


@dataclass(frozen=True, kw_only=True)
class Workload:
    """The input of one rank in one micro-batch.

    ``micro_batch`` samples of ``sequence_length`` tokens (0 if samples have none); a sequence-to-sequence model also
    decodes ``target_length`` tokens (None for all others).
    """

    micro_batch: int
    sequence_length: int = 0
    target_length: int | None = None


@dataclass(frozen=True, kw_only=True)
class Model:
    """One architecture at one size, built with random weights.

    ``config_class`` and ``model_class`` are names in ``transformers``, ``config`` the keyword arguments of the
    config's constructor. A model from outside transformers gives ``build`` instead: ``"package.module:function"``,
    called in the rank with this Model and returning a ``torch.nn.Module``.

    A ``task`` stands for batches of token ids. Any other model gives ``batch`` instead, a function of this Model (with
    the cell's workload) and the seeds of a micro-batch's samples, one number each. It returns tensors or arrays in any
    structure, on the CPU, drawn from those numbers alone. ``loss`` is a function of the module and that structure, and
    returns the mean loss; by default the module is called with it, and its output's ``.loss`` is taken. If the
    micro-batches have different numbers of what the loss is the mean of, ``items`` returns that of one, from its
    structure.

    ``parameters`` is the exact number of elements of all parameters, tied ones counted once: a rank refuses to time a
    model with another number. Without it (0), they are counted, and compared with the baseline's. ``source`` says where
    the dimensions come from. ``packages`` are distributions that it needs in addition to torch, transformers,
    accelerate and DeepSpeed: their versions are recorded, and a trial restores them.

    A script (task "script") has a ``command`` that trains, and the ``folder`` in which it starts. With a ``launcher``
    (catalog/scripts.py), that starts the command on the ranks of the cell.
    """

    name: str
    family: str
    task: str = ""
    source: str
    workload: Workload
    parameters: int = 0
    config_class: str = ""
    model_class: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    build: str = "perfsuite.rank.build_model:from_transformers"
    batch: str = ""
    loss: str = "perfsuite.rank.batches:loss_of_output"
    items: str = ""
    positions: int | None = None  # the number of learned positions, which limits a sequence; None: they are computed
    vocabulary: int = 0  # tokens are drawn from [first_token, vocabulary)
    first_token: int = 2  # the tokens below it are padding and end of sequence
    attentions: frozenset[str] = frozenset({"eager", "sdpa", "flash_attention_2"})  # supported by transformers
    experts: int = 0  # of a layer, that transformers has a plan to divide; 0: none
    frozen: tuple[str, ...] = ()  # paths of transformers' modules that are not trained, such as an image's encoder
    cut: "Cut | None" = None  # where a pipeline may cut it; None: it cannot be cut
    divisible: Mapping[str, int] | None = None  # sizes that a tensor-parallel width must divide; None: there is no plan
    packages: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    folder: str = ""
    launcher: str = ""


@dataclass(frozen=True, kw_only=True)
class Cut:
    """Where a decoder is cut into pipeline stages; every name is a path from the model.

    Stages share the ``depth`` modules of ``layers`` evenly. Only stage 0 has ``first`` (the embeddings, and modules
    applied to their sum), only the last stage has ``last`` (the final norm and the head). ``body`` is the module
    between inputs and head; it takes hidden states as ``inputs_embeds``. ``tied`` are the names of one parameter in the
    first and in the last stage.
    """

    body: str
    layers: str
    depth: int
    first: tuple[str, ...]
    last: tuple[str, ...]
    tied: tuple[str, str] | None = None


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


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How many ranks each dimension of a cell has; their product is the world size. A rank has so many ``devices``.

    Rank order, slowest first: pipeline stage, replica, shard, part of a sequence (context), tensor-parallel rank.
    Replicas and shards get different data. The stages and tensor-parallel ranks of one replica get the same, and its
    context ranks get parts of it.
    """

    pipeline: int = 1
    replicas: int = 1
    shards: int = 1
    context: int = 1
    tensor: int = 1
    devices: int = 1

    @property
    def of_ranks(self) -> dict[str, int]:
        """The width of each dimension that consists of ranks, slowest first."""
        return {name: width for name, width in dataclasses.asdict(self).items() if name != "devices"}

    @property
    def ranks(self) -> int:
        """The world size."""
        return math.prod(self.of_ranks.values())

    @property
    def data_ranks(self) -> int:
        """How many ranks get different data."""
        return self.replicas * self.shards

    @property
    def shared_by(self) -> int:
        """How many ranks of a stage share the same data."""
        return self.context * self.tensor

    @property
    def stage_ranks(self) -> int:
        """How many ranks a pipeline stage has."""
        return self.data_ranks * self.shared_by


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """A model under a strategy on some ranks, before it is known whether they fit together.

    ``numbers`` are those after the techniques' names (``{"acc": 8}``), ``device`` is None for a CPU.
    """

    model: Model
    engine: "Engine"
    techniques: frozenset[str]
    numbers: Mapping[str, int]
    layout: Layout
    device: Device | None


@dataclass(frozen=True)
class Engine:
    """How the ranks of a cell share the work of one optimizer step.

    ``trainer`` is the class (a ``perfsuite.rank.trainer.Trainer``) that a rank instantiates; its module must not import
    torch when it is imported. ``dimension`` is the field of Layout for the ranks that the techniques of ``combines``
    (``dp``, ``tp``, and ``sp`` if tensor-parallel ranks share sequences) leave; it is at least ``min_ranks`` and at
    most ``max_ranks`` wide. If it is "devices", these are not ranks: one rank has them all. ``preload`` names the
    modules that the rank server imports before it forks.
    ``prepare`` is a function that the server then calls once, for example to build an extension (under
    ``extensions.build_lock``). ``shards`` says which of "optimizer", "gradients" and
    "parameters" are divided over the ranks. ``keeps`` is what its optimizer gets: "tensors" of the model, "pieces"
    (concatenated parameters, without rows and columns) or "dtensors". ``casts`` means that below fp32 it keeps the
    model in half precision, in addition to fp32 master parameters; its gradients are in fp32 too if it ``widens`` them.
    ``finds_device`` means that its library asks torch for the device to compute on. ``loops`` names the techniques
    whose loops can run it instead of its own. ``packages`` must be installed: names of distributions. ``saves`` names
    the library that knows its state, and so saves it: "torch" or "deepspeed"; empty if none does.

    The closed form of a step's time knows it if it is ``timed``: as a pipeline with so many ``chunks`` of the model on
    a rank, and with gradients that a rank gets its share of alone if ``scatters``, and otherwise whole. ``stacks`` are
    the planner's software of which it is a part, so that a trace of it checks their closed form. ``computes`` are
    fields of that form (predict/time/setup.py) in which its own layers differ from transformers'.

    ``refuses`` maps a technique to the reason why the engine does not support it. ``why_not`` returns what a Proposal
    lacks, or nothing. ``refused`` is the reason why the engine can run nowhere, for names that people ask for.
    ``process`` is what its cells do, a name of PROCESSES.
    """

    name: str
    source: str
    trainer: Callable[..., Any] | None = None
    _: KW_ONLY
    dimension: str = "replicas"
    min_ranks: int = 1
    max_ranks: int | None = None
    combines: frozenset[str] = frozenset()
    shards: frozenset[str] = frozenset()
    loops: frozenset[str] = frozenset()
    keeps: str = "tensors"
    casts: bool = False
    widens: bool = False
    saves: str = ""
    packages: tuple[str, ...] = ()
    preload: tuple[str, ...] = ()
    prepare: Callable[[], None] | None = None
    refuses: Mapping[str, str] = field(default_factory=dict)
    why_not: Callable[[Proposal], str] | None = None
    refused: str = ""
    process: str = "training"
    timed: bool = False
    chunks: int = 1
    scatters: bool = True
    stacks: frozenset[str] = frozenset()
    computes: Mapping[str, Any] = field(default_factory=dict)
    finds_device: bool = False

    @property
    def own(self) -> bool:
        """Whether its loop is the user's own."""
        return PROCESSES[self.process].own


@dataclass(frozen=True)
class Technique:
    """One choice of a recipe. A strategy has at most one technique of a ``slot``.

    ``order`` is the slot's place in a strategy's name; the ``default`` of a slot is left out of it. ``sets`` are the
    fields of ``perfsuite.rank.recipe.Recipe`` that it changes. A technique with ``parameter`` is written with an
    integer after its name (``acc8``): the value of that field of the recipe or, if it is a field of Layout, the width
    of that dimension. ``applies`` is called in the rank with the session and the new model and returns the model to
    train. ``counts`` means that model FLOPs are counted on the returned model. ``loop`` is a class that replaces the
    engine's own loop, as in ``techniques/_accelerate.py``.

    ``packages`` must be installed; ``preload`` and ``prepare`` are as in Engine. ``why_not`` returns what a Proposal
    lacks, or nothing. ``refused`` is the reason why the technique is not supported anywhere, for names that people ask
    for. ``processes`` are the kinds of cells (Engine.process) that it affects.
    """

    name: str
    meaning: str
    _: KW_ONLY
    slot: str
    order: int
    default: bool = False
    sets: Mapping[str, Any] = field(default_factory=dict)
    parameter: str | None = None
    applies: Callable[[Any, Any], Any] | None = None
    counts: bool = False
    loop: Callable[..., Any] | None = None
    packages: tuple[str, ...] = ()
    preload: tuple[str, ...] = ()
    prepare: Callable[[], None] | None = None
    why_not: Callable[[Proposal], str] | None = None
    refused: str = ""
    processes: tuple[str, ...] = ("training",)


@dataclass(frozen=True)
class Materiality:
    """The smallest share of the old value from which a difference of an exact metric matters, and the reason. Less is
    shown and is not red.
    """

    share: float
    because: str


EVERY_DIFFERENCE = Materiality(0.0, "It must never differ.")
OF_A_STEP = Materiality(0.01, "1 % of the calls takes 1 % of a step at most. Trials find 2 % and more.")
OF_A_PEAK = Materiality(0.001, "torch reserves segments of 2 and 20 MiB. Of a peak of 2 GiB, 0.1 % is one of them.")
OF_A_CHECKPOINT = Materiality(0.001, "It may hold texts with times, such as a Trainer's log, whose length varies.")


@dataclass(frozen=True)
class Metric:
    """One measured number, its meaning and its rule.

    ``fold`` joins the ranks' values: "max" (the fullest rank runs out of memory first, and the slowest rank determines
    the step time), "min", "sum" or "mean". ``hold`` names a rule of ``compare/rules`` or of the user's ``rules/``:
    "exact" (equality of the value and its parts), "close" (every sample within the precision's bound), "error" (at most
    twice the baseline's, or what the precision explains), "time" (the median, on the machine that recorded it) or
    "shown" (must exist and be finite, without a limit) or "zero" ("exact", and more than 0 is red without a baseline
    too). ``worse`` says which direction is bad: "higher", "lower" or "different". ``derive`` computes the number from
    the other folded readings and the world size, instead of from the ranks. ``processes`` are the kinds of cells
    (Engine.process) that have it, by default those of its meter. ``depends_on`` names versions ("python") whose minor
    release must be the same on both sides, or the metric is not held. ``every_part`` explains a difference by all parts
    that moved, since a small move may cause a larger one. ``materiality`` is for an "exact" metric. ``coarse`` marks a
    time with few samples per launch: it gets a wider tolerance on a shared machine, where a slow period outlasts a
    step.
    """

    name: str
    title: str
    unit: str  # of units.py; another one is written after a plain number
    _: KW_ONLY
    fold: Literal["max", "min", "sum", "mean"] = "max"
    hold: str = "shown"
    worse: Literal["higher", "lower", "different"] = "higher"
    bound: float = 1e-4  # relative, for a "close" metric in fp32
    column: int | None = None  # its place in the summary table; None: not in the table
    optional: bool = False  # may be missing: the device cannot measure it, or it is newer than a baseline
    derive: Callable[[Mapping[str, Any], int], float | None] | None = None
    processes: tuple[str, ...] = ()
    depends_on: tuple[str, ...] = ()
    every_part: bool = False
    materiality: Materiality = EVERY_DIFFERENCE
    coarse: bool = False
    rule: Any = None  # the user's own rule that hold names, set by the catalog; None for perfsuite's

    @property
    def sign(self) -> int:
        """Times this sign, a larger number is worse: -1 for a rate."""
        return -1 if self.worse == "lower" else 1

    @property
    def is_time(self) -> bool:
        """Whether it is compared as a time, or a rate."""
        return self.hold == "time"

    @property
    def is_timed(self) -> bool:
        """Whether every launch of a trial measures it: a time, or a part of one. All else repeats itself."""
        return self.is_time or (self.unit == SECONDS and self.derive is None)

    def show(self, number: float) -> str:
        """A number of it as text."""
        return show(number, self.unit)


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A row or a column of a study: how its cells differ from the study's defaults.

    The row or the column names the engine; the techniques of both are joined. ``ranks`` are the cell's, ``micro_batch``
    is the samples per rank at once, and ``global_batch`` those of all ranks at once. ``larger`` selects the next larger
    model of the family, with the same workload. ``note`` has figures that others published.
    """

    name: str = ""
    engine: str = ""
    techniques: tuple[str, ...] = ()
    ranks: int | None = None
    micro_batch: int | None = None
    global_batch: int | None = None
    larger: bool = False
    note: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Study:
    """One question, the cells that answer it, and how the answer follows from them.

    ``rows`` × ``columns`` are the cells, by default on ``model`` and ``hardware``; ``columns`` may depend on the number
    of ranks. Numbers are shown with their ratio to the ``reference`` row of the same column, or to the
    ``reference_column`` of the same row. ``answer`` is called with the perfsuite.studies._study_rows.Results of one
    model and returns sentences. ``asked`` quotes who asks the question.

    A study with a ``forecast`` measures nothing. It is called with models, hardware and the catalog, and returns rows
    of perfsuite.studies._forecast, which ``answer`` gets instead. ``units`` are those of their columns.
    """

    name: str
    question: str
    asked: str
    model: str
    hardware: str
    rows: tuple[Variant, ...] = ()
    columns: tuple[Variant, ...] | Callable[[int], tuple[Variant, ...]] = (Variant(),)
    reference: str = ""
    reference_column: str = ""
    metrics: tuple[str, ...] = ("peak_memory_bytes", "step_time_seconds", "tokens_per_second", "flops_per_rank")
    answer: Callable[[Any], list[str]]
    forecast: Callable[[Any, Any, Any], Any] | None = None
    units: Mapping[str, str] = field(default_factory=dict)
