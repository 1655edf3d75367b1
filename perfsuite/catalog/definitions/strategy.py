"""What a strategy consists of: an engine, techniques, and how they lay out ranks."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from perfsuite.catalog.definitions.device import Device
from perfsuite.catalog.definitions.model import Model
from perfsuite.catalog.processes import PROCESSES

HALF_PRECISION = frozenset({"fp16", "bf16", "pure_bf16", "fp8", "fp8_rowwise"})  # techniques: less than fp32


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
    train. ``counts``, if there is one, is called so with the model of which FLOPs are counted. ``loop`` is a class that
    replaces the engine's own loop, as in ``techniques/_accelerate.py``.

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
    counts: Callable[[Any, Any], Any] | None = None
    loop: Callable[..., Any] | None = None
    packages: tuple[str, ...] = ()
    preload: tuple[str, ...] = ()
    prepare: Callable[[], None] | None = None
    why_not: Callable[[Proposal], str] | None = None
    refused: str = ""
    processes: tuple[str, ...] = ("training",)
