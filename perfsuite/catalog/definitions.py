"""What a definition file defines: the types of the catalog. Data only; nothing here imports torch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

MESSAGES = "messages"  # the task of what has no weights: cells of the process "communication" have it alone
DEDICATED_TIME_TOLERANCE = 0.02  # an accelerator that nobody else uses, its clocks locked
CPU_TIME_TOLERANCE = 0.03  # a CPU has no clocks to lock, and neighbours that share its caches
TASKS = ("causal_lm", "seq2seq_lm", "sequence_classification", MESSAGES)


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What one rank is fed in one micro-batch.

    ``micro_batch`` samples of ``sequence_length`` tokens; a sequence-to-sequence model decodes
    ``target_length`` tokens beside it (None for all others).
    """

    micro_batch: int
    sequence_length: int
    target_length: int | None = None


@dataclass(frozen=True, kw_only=True)
class Model:
    """One architecture at one size with a task head, built with random weights.

    ``config_class`` and ``model_class`` are names in ``transformers``, ``config`` the keyword arguments of the
    config's constructor. A model from outside transformers gives ``build`` instead: ``"package.module:function"``,
    called in the rank with this Model and returning a ``torch.nn.Module`` whose forward takes the batch's entries
    as keywords and returns an object with ``.loss``, the mean over the labels.

    ``parameters`` is the exact number of elements of all parameters, tied ones counted once: a rank refuses to time a
    model that has another number. ``source`` says where the dimensions come from. ``packages`` are distributions that
    it runs beside torch, transformers, accelerate and DeepSpeed: their versions are recorded, and a trial puts them
    back.
    """

    name: str
    family: str
    task: str
    source: str
    workload: Workload
    parameters: int
    config_class: str = ""
    model_class: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    build: str = "perfsuite.rank.build:from_transformers"
    positions: int | None = None  # so many are learned, and no sequence is longer; None: they are computed
    vocabulary: int = 0  # tokens are drawn from [first_token, vocabulary)
    first_token: int = 2  # the tokens below it are padding and end of sequence
    attentions: frozenset[str] = frozenset({"eager", "sdpa", "flash_attention_2"})  # transformers has them for it
    cut: "Cut | None" = None  # where a pipeline may cut it; None: it cannot be cut
    divisible: Mapping[str, int] | None = None  # what a tensor-parallel width must divide; None: there is no plan
    packages: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Cut:
    """Where a decoder is cut into pipeline stages; every name is a path from the model.

    Stages share the ``depth`` modules of ``layers`` evenly. Stage 0 alone has ``first`` (embeddings, and what is
    applied to their sum), the last stage alone has ``last`` (the final norm and the head). ``body`` is the module
    between inputs and head that takes hidden states as ``inputs_embeds``. ``tied`` are the names that one parameter
    has in the first and in the last stage.
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

    ``dense_flops`` maps a dtype ("fp32", "tf32", "fp16", "bf16", "fp8") to the datasheet's dense peak; a dtype that is
    missing is not supported in hardware. ``link_bandwidth`` is one direction, per device, between devices of a node (0:
    none); ``matches`` are lower-case fragments that all occur in the name that the driver reports, and none of
    ``excludes`` does. ``memory_bytes`` is what the driver reports, which tells apart devices of one name; of them CUDA
    does not give ``reserved_bytes`` to anyone, as the totals in torch's out-of-memory errors show (0: nobody published
    one). ``time_tolerance`` is the smallest relative slow-down that must not go unseen on a dedicated machine with
    locked clocks.
    """

    name: str
    matches: tuple[str, ...]
    memory_bytes: int
    memory_bandwidth: float
    dense_flops: Mapping[str, float]
    link_bandwidth: float
    host_bandwidth: float
    power_watts: float
    source: str
    compute_capability: float | None = None  # NVIDIA's, by which torch chooses its kernels
    measured_matmul_flops: float | None = None  # the best bf16 (fp16 before Ampere) matmul that anyone published
    reserved_bytes: int = 0
    time_tolerance: float = DEDICATED_TIME_TOLERANCE
    excludes: tuple[str, ...] = ()

    @property
    def usable_bytes(self) -> int:
        """The memory that torch sees."""
        return self.memory_bytes - self.reserved_bytes


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How many ranks each dimension of a cell has; their product is the world size.

    Rank order, slowest first: pipeline stage, replica, shard, tensor-parallel rank. Replicas and shards are fed
    different data, the stages and tensor-parallel ranks of one replica the same.
    """

    pipeline: int = 1
    replicas: int = 1
    shards: int = 1
    tensor: int = 1

    @property
    def data_ranks(self) -> int:
        """How many ranks are fed different data."""
        return self.replicas * self.shards


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """A model under a strategy on some ranks, before it is agreed that they can go together.

    ``numbers`` are those behind the techniques' names (``{"acc": 8}``), ``device`` is None for a CPU.
    """

    model: Model
    engine: "Engine"
    techniques: frozenset[str]
    numbers: Mapping[str, int]
    layout: Layout
    device: Device | None


@dataclass(frozen=True, kw_only=True)
class Engine:
    """How the ranks of a cell share the work of one optimizer step.

    ``trainer`` is the class (a ``perfsuite.rank.trainer.Trainer``) that a rank instantiates; its module must not
    import torch when it is imported. ``dimension`` is the field of Layout that takes all ranks which the techniques
    of ``combines`` (``dp``, ``tp``) leave, and is at least ``min_ranks`` and at most ``max_ranks`` wide.
    ``preload`` names the modules that the rank server imports before it forks, and ``prepare`` a function that it
    calls once behind them, such as to build an extension (under ``extensions.build_lock``). ``shards`` says which of
    "optimizer", "gradients" and "parameters" are divided over the ranks, ``keeps`` what its optimizer is given:
    "tensors" as the model has them, "pieces" (of several parameters behind one another, without rows and columns) or
    "dtensors", and ``casts`` that below fp32 it keeps the model itself in half precision, beside fp32 master
    parameters. ``loops`` names the techniques whose loops can run it beside its own.

    ``refuses`` maps a technique to the reason why the engine cannot have it; ``why_not`` says what a Proposal lacks,
    or nothing; ``refused`` is the reason why the engine cannot run anywhere, for those that people ask for by name.
    ``process`` is what its cells do: "training", "inference" or "communication".
    """

    name: str
    source: str
    trainer: Callable[..., Any] | None = None
    dimension: str = "replicas"
    min_ranks: int = 1
    max_ranks: int | None = None
    combines: frozenset[str] = frozenset()
    shards: frozenset[str] = frozenset()
    loops: frozenset[str] = frozenset()
    keeps: str = "tensors"
    casts: bool = False
    packages: tuple[str, ...] = ()
    preload: tuple[str, ...] = ()
    prepare: Callable[[], None] | None = None
    refuses: Mapping[str, str] = field(default_factory=dict)
    why_not: Callable[[Proposal], str] | None = None
    refused: str = ""
    process: str = "training"


@dataclass(frozen=True, kw_only=True)
class Technique:
    """One choice of a recipe. A strategy carries at most one technique of a ``slot``.

    ``order`` is the slot's place in a strategy's name; the ``default`` of a slot is left out of it. ``sets`` are the
    fields of ``perfsuite.rank.recipe.Recipe`` that it changes; a technique with ``parameter`` is written with a
    whole number behind its name (``acc8``) that becomes the value of that field, or, where it names a field of
    Layout, the width of that dimension. ``applies`` is called in the rank with the session and the model that was
    just built and returns the model to train; ``counts`` says that model FLOPs are counted on what it returns.
    ``loop`` is a class that takes the place of the engine's own loop, as in ``techniques/_accelerate.py``.

    ``packages`` must be installed; ``preload`` and ``prepare`` are what they are of an Engine. ``why_not`` says what a
    Proposal lacks, or nothing; ``refused`` is the reason why the technique cannot be had anywhere, for those that
    people ask for by name. ``processes`` are the kinds of cells (Engine.process) in which it changes anything.
    """

    name: str
    slot: str
    order: int
    meaning: str
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


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One number that is measured, what it means and how it is held.

    ``fold`` joins the ranks' values: "max" (the fullest rank dies, the slowest rank sets the pace), "sum" or "mean".
    ``hold`` names the rule of ``gate/rules`` that the judge applies: "exact" (equality of the value and its parts),
    "close" (every sample within the precision's bound), "time" (the median, on the machine that recorded it) or "shown"
    (must be there and finite, has no limit). ``worse`` says which way is bad: "higher", "lower" or "different".
    ``derive`` computes the number from the other folded readings and the world size, instead of from the ranks.
    ``processes`` are the kinds of cells (Engine.process) that have it. ``depends_on`` names the versions ("python") of
    which both sides must have the same minor release, or the metric is not held. ``every_part`` explains a difference
    by all parts that moved, where a part that moved less may be the cause of one that moved more. ``coarse`` is a time
    of which a launch has few samples: a shared machine, whose slow spells outlast a step, gets a wider tolerance.
    """

    name: str
    title: str
    show: Callable[[float], str]
    fold: Literal["max", "sum", "mean"] = "max"
    hold: str = "shown"
    worse: Literal["higher", "lower", "different"] = "higher"
    bound: float = 1e-4  # relative, of a "close" metric in fp32
    column: int | None = None  # its place in the summary table; None: not there
    optional: bool = False  # may be missing where the device cannot tell it
    derive: Callable[[Mapping[str, Any], int], float | None] | None = None
    processes: tuple[str, ...] = ("training", "inference")
    depends_on: tuple[str, ...] = ()
    every_part: bool = False
    coarse: bool = False

    @property
    def sign(self) -> int:
        """Times the sign, more is worse: -1 for a rate."""
        return -1 if self.worse == "lower" else 1


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A row or a column of a study: what its cells have in place of the study's defaults.

    The engine is named by the row or by the column; the techniques of both are joined. ``ranks`` are of the cell,
    ``micro_batch`` is what a rank is fed at once and ``global_batch`` what all ranks are fed at once. ``larger`` asks
    for the next larger model of the family, at the same workload. ``note`` holds figures that others published.
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
    """One question, the cells that answer it, and how the answer is read off them.

    ``rows`` × ``columns`` are the cells, on ``model`` and ``hardware`` unless others are asked for; ``columns`` may
    depend on the number of ranks. Numbers stand beside their ratio to the ``reference`` row of the same column, or to
    the ``reference_column`` of the same row. ``answer`` is called with the perfsuite.studies._rows.Results of one
    model and returns sentences. ``asked`` says who asks the question, in whose words.
    """

    name: str
    question: str
    asked: str
    model: str
    hardware: str
    rows: tuple[Variant, ...]
    columns: tuple[Variant, ...] | Callable[[int], tuple[Variant, ...]] = (Variant(),)
    reference: str = ""
    reference_column: str = ""
    metrics: tuple[str, ...] = ("peak_memory_bytes", "step_time_seconds", "tokens_per_second", "flops_per_rank")
    answer: Callable[[Any], list[str]]
