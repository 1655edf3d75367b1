"""FLOPs, and their share of the hardware's peak.

Model FLOPs are counted by ``torch.utils.flop_counter`` on the model without checkpointing and with full (not causal)
attention, forward and backward: for GPT models that equals 72BLsh²(1 + s/6h + V/12hL) (arXiv 2205.05198, appendix A);
inference is the forward alone, a third of it. A script's model is not built again, and batches of a model's own may
decide by their values what is computed: there, model FLOPs are those of a real step without what a forward recomputes
inside of a backward. Hardware FLOPs are counted in a real step, recomputation included. MFU and HFU (arXiv 2204.02311,
appendix B) divide them by the dense peak of the compute dtype: the datasheet's on a GPU, on a CPU the fastest matmul
measured in the same rank, before the first step and again after the last. A measured peak below the cell's own rate is
invalid: then there is no MFU and no HFU.

A count that fails, for whatever reason, leaves its metric out with the reason (RankSample.uncounted), and the cell
trains on. The model runs on fake tensors in a fork of the rank, since it may keep one, or die of one. An operator that
the counter does not know, and that computes more than a number for each number, is named (unknown_operators).
"""

from __future__ import annotations

import contextlib
import itertools
import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from perfsuite.catalog.definitions import Materiality, Metric
from perfsuite.catalog.processes import WITH_OWN, WITH_WEIGHTS
from perfsuite.errors import Unsupported
from perfsuite.meters._formulas import formulas
from perfsuite.rank.batches import definition_of
from perfsuite.rank.build_model import build_for_counting
from perfsuite.rank.forked import NoAnswer, in_a_fork, reason_of
from perfsuite.rank.grouped import grouped_output
from perfsuite.rank.meter import Meter, on_dtensors
from perfsuite.rank.tasks import make_sample
from perfsuite.rank.trainer import Trainer
from perfsuite.records.sample import Reading
from perfsuite.records.step_kinds import StepKind
from perfsuite.system.units import FLOP, FLOPS, RATIO, WHOLE

if TYPE_CHECKING:
    from perfsuite.rank.session import Session

_DTYPES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
MATMUL_SIZES = (64, 128, 512)  # the fastest counts: some kernels are fast only at small sizes
MATMUL_SECONDS = 0.01  # per size, layout and dtype; the best run within this time
COUNT_SECONDS = 180.0  # the other ranks wait, and the launcher ends those that do so for 300
MOST_READS = 10_000  # of numbers on the host; all are 1, so a loop that waits for another one never ends
TORCHS = ("aten", "prims")
MOVING = (  # operators that only move tensors, such as FSDP's copies
    *("c10d", "_c10d_functional", "_c10d_functional_autograd", "_dtensor", "fsdp", "symm_mem"),
    *("deepspeed", "inductor", "prim", "profiler", "streams"),
)
HEAVY = (  # how parts of their names begin: products, convolutions, transforms, recurrences, scans, decompositions
    *("mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot", "vdot", "addr", "bilinear", "trilinear", "cdist", "pdist"),
    *("conv", "fft", "attention", "transformer", "rnn", "lstm", "gru", "ctc", "grid", "scan"),
    *("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp", "linalg", "cholesky", "triangular", "ormqr", "geqrf"),
)
ABOVE = "it would be above 100 %, so the peak that was measured is too low"
NONE_KNOWN = "it has no operator that torch's counter of FLOPs knows"


class Flops(Meter):
    """Counts on fake tensors before the first step, and in the one counted step."""

    processes = WITH_OWN

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.counter: Any = None
        self.model_flop = 0
        self.counts_step = session.job.model.task not in WITH_WEIGHTS  # model FLOPs too
        self.phase = ""
        session.phases.listen(self.begins)
        self.peak = self._peak()  # before any memory is counted or capped

    def begins(self, phase: str) -> None:
        """A phase of a step begins."""
        self.phase = phase

    def prepared(self, trainer: Trainer) -> None:
        super().prepared(trainer)
        if self.counts_step:
            return
        known = self.session.job.model_flop
        self.model_flop = known if known and self.session.leads_replica else 0
        if known is None and self.session.leads_replica:
            self.count_model()

    def count_model(self) -> None:
        """Count the model's FLOPs, or keep the reason why that is impossible."""
        try:
            self.model_flop = count_model_flop(self.session)
        except NoAnswer as error:
            self.uncounted["model_flop"] = str(error)

    def step(self, kind: StepKind) -> contextlib.AbstractContextManager[object]:
        if kind != StepKind.COUNTED:
            return contextlib.nullcontext()
        self.counter = _flop_counter(lambda: self.trainer.recomputing, lambda: self.phase)
        counting = contextlib.ExitStack()
        if "torch._dynamo" in sys.modules:  # dispatch modes cannot see compiled code, so this step runs without it
            import torch

            counting.enter_context(torch.compiler.set_stance("force_eager"))
        counting.enter_context(self.counter)
        return counting

    def readings(self) -> dict[str, Reading]:
        counted = self.counted(self.model_flop, Reading(value=int(self.counter.get_total_flops())))
        unknown = self.counter.unknown
        if unknown:  # a share of the peak that rests on a hole is none
            ratios = ("mfu", "hfu") if self.counts_step else ("hfu",)
            self.uncounted |= dict.fromkeys(ratios, hole(unknown))
        return {
            **counted,
            "unknown_operators": Reading(value=unknown.total(), parts=dict(unknown)),
            "peak_flops": Reading(value=max(self.peak, self._peak())),
        }

    def counted(self, model_flop: int, hardware: Reading) -> dict[str, Reading]:
        """The two counts, without one that failed."""
        if self.counts_step:
            model_flop = int(hardware.value) - self.counter.recomputed
            if not model_flop:
                self.uncounted["model_flop"] = NONE_KNOWN
        if why_not := self.counter.why_not or self.trainer.opaque:
            self.uncounted["hardware_flop"] = why_not
        found = {"model_flop": Reading(value=model_flop), "hardware_flop": hardware}
        return {name: reading for name, reading in found.items() if name not in self.uncounted}

    def _peak(self) -> float:
        if self.session.job.device == "cpu":
            return measure_matmul(self.session)
        recipe = self.session.recipe
        name = "tf32" if recipe.tf32 else _DTYPES[recipe.compute_dtype]
        if name not in self.session.job.dense_flops:
            raise Unsupported(f"{self.session.job.cell}: the hardware has no {name} arithmetic.")
        return self.session.job.dense_flops[name] * self.session.layout.devices


def count_model_flop(session: Session) -> int:
    """Model FLOPs of one optimizer step of one replica. Padding is computed like every other position, so it counts.

    Inference has no backward. Generation counts one forward over prompt and new tokens together: with the cache, every
    position passes through the model once. The head at every position and full attention count. Raises NoAnswer with
    the reason if the model cannot be counted.
    """
    import torch

    def in_the_fork() -> int:
        torch.set_num_threads(1)  # makes the pool anew; two threads of a backward that both do die (pytorch #178535)
        return _count_on_fakes(session)

    if torch.cuda.is_initialized():  # such a process cannot be forked
        try:
            flop = _count_on_fakes(session)
        except Exception as error:
            raise NoAnswer(reason_of(error)) from error
    else:
        flop = in_a_fork(in_the_fork, COUNT_SECONDS)
    if not flop:
        raise NoAnswer(NONE_KNOWN)
    return flop * session.recipe.accumulation


def _count_on_fakes(session: Session) -> int:
    """The FLOPs of one forward, and of its backward if the cell trains. Raises whatever the model raises."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    class OneFakeMode(FakeTensorMode):
        """Stays one mode if a model copies its layers, as torch.nn.TransformerEncoder does: two cannot be mixed."""

        def __deepcopy__(self, memo: dict[int, Any]) -> OneFakeMode:
            return self

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if function is torch.ops.aten._grouped_mm.default:
                return grouped_output(*args, **(kwargs or {}))
            return super().__torch_dispatch__(function, types, args, kwargs)

    micro_batch = session.job.workload.micro_batch
    sample = make_sample(definition_of(session), seed=0)
    by_value = torch.autograd.set_detect_anomaly(False)  # it looks for NaN, which fakes do not have
    with OneFakeMode(), by_value:
        model = build_for_counting(session)
        inputs = {name: torch.ones((micro_batch, *row.shape), dtype=torch.long) for name, row in sample.items()}
        training = session.strategy.engine.process == "training"
        with _flop_counter() as counter:
            with torch.set_grad_enabled(training), _values_are_one():
                loss = model(**inputs).loss
            if training:
                loss.backward()
    if counter.why_not or counter.unknown:
        raise NoAnswer(counter.why_not or hole(counter.unknown))
    return int(counter.get_total_flops())


def _values_are_one() -> Any:
    """Lets a model that reads a number on the host (``.item()``) read 1, since a fake tensor has no values. A model
    whose shapes depend on it, as the attention of Bloom in transformers 4.44, cannot be counted.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class OnesMode(TorchDispatchMode):
        asked = 0

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if function is torch.ops.aten._local_scalar_dense.default:
                self.asked += 1
                if self.asked > MOST_READS:
                    raise NoAnswer(f"it reads more than {MOST_READS:,} numbers on the host")
                dtype = args[0].dtype
                return True if dtype is torch.bool else 1.0 if dtype.is_floating_point else 1
            return function(*args, **(kwargs or {}))

    mode: Any = OnesMode
    return mode()


def measure_matmul(session: Session) -> float:
    """FLOP/s of the best square matmul on this rank's share of the CPU, with the same kernels as the step.

    In the layouts of forward and backward, and in fp32 too: without instructions for the compute dtype, a CPU's fastest
    matmuls are those that the cell keeps in fp32.
    """
    import torch

    best = 0.0
    for dtype, size in itertools.product(dict.fromkeys((torch.float32, session.compute_dtype)), MATMUL_SIZES):
        one, other = (torch.randn(size, size).to(dtype) for _ in range(2))
        for left, right in ((one, other), (one, other.t()), (one.t(), other)):
            start = time.perf_counter()
            torch.mm(left, right)
            begin = now = time.perf_counter()
            if now - start > MATMUL_SECONDS and 2 * size**3 / (now - start) < best / 2:
                continue  # it takes long and would not be the fastest: bf16 without instructions for it
            while now - begin < MATMUL_SECONDS:
                start = now
                torch.mm(left, right)
                now = time.perf_counter()
                best = max(best, 2 * size**3 / (now - start))
    return best


def hole(unknown: Iterable[str]) -> str:
    """Why a number that needs all FLOPs cannot be told."""
    return f"the FLOPs of {', '.join(sorted(unknown))} are not known"


def _flop_counter(recomputing: Callable[[], bool] = bool, phase: Callable[[], str] = str) -> Any:
    """torch's counter, for this rank's work: for a DTensor it would count the work of all ranks. What it does not know
    has a formula in _formulas.py, or is in ``unknown``, unless an optimizer calls it: no count has an optimizer's
    arithmetic. A formula that fails does not end the step: ``why_not`` says it.
    """
    from torch.utils.flop_counter import FlopCounterMode

    class Everything(contextlib.nullcontext[None]):
        """Torch's tracker of modules hooks their inputs, which autograd.grad refuses for a leaf."""

        parents = frozenset({"Global"})

    class CountingFlops(FlopCounterMode):
        why_not = ""
        recomputed = 0
        unknown: Counter[str]

        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.mod_tracker: Any = Everything()
            self.unknown = Counter()
            self.flop_registry = {name: self._safe(name, formula) for name, formula in self.flop_registry.items()}

        def _safe(self, operator: Any, formula: Any) -> Any:
            def count(*args: Any, **kwargs: Any) -> int:
                if phase() == "optimizer":
                    return 0
                try:
                    flop = int(formula(*args, **kwargs) * density(args))
                    self.recomputed += flop if recomputing() else 0
                    return flop
                except Exception as error:
                    self.why_not = self.why_not or f"the formula for {operator} fails: {reason_of(error)}"
                    return 0

            return count

        def __enter__(self) -> Any:
            super().__enter__()  # type: ignore[no-untyped-call]
            mode: Any = type(self.mode)
            known, unknown = self.flop_registry, self.unknown

            class Local(mode):  # type: ignore[misc]
                def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                    if on_dtensors(types):
                        return NotImplemented
                    out = super().__torch_dispatch__(function, types, args, kwargs)
                    if function.overloadpacket not in known and phase() != "optimizer" and computes(function, out):
                        unknown[f"{function.namespace}::{function.overloadpacket.__name__}"] += 1
                    return out

            self.mode.__class__ = Local
            return self

    return CountingFlops(display=False, custom_mapping=formulas())


def density(inputs: Iterable[Any]) -> float:
    """The share of a product that its sparse tensors leave: formulas know shapes alone."""
    import torch

    shares = []
    for one in inputs:
        if isinstance(one, torch.Tensor) and one.layout != torch.strided and one.numel():
            values = one._values() if one.layout == torch.sparse_coo else one.values()
            shares.append(values.numel() / one.numel())
    return math.prod(shares)


def computes(function: Any, out: Any) -> bool:
    """Whether an operator on floats computes more than a number for each number: one of another package, or one of
    torch's of these kinds. One that consists of others is not asked for, but they are.
    """
    import torch

    leaves = out if isinstance(out, tuple | list) else [out]
    if not any(isinstance(leaf, torch.Tensor) and (leaf.is_floating_point() or leaf.is_complex()) for leaf in leaves):
        return False
    if function.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd):
        return False
    if function.namespace not in TORCHS:
        return function.namespace not in MOVING
    parts = function.overloadpacket.__name__.split("_")
    return "norm" not in parts and any(part.startswith(HEAVY) for part in parts)


def flops_per_rank(readings: Mapping[str, Reading], world_size: int) -> float:
    """Model FLOP/s of one rank over the median step, the "TFLOP/s per GPU" of the literature."""
    return readings["model_flop"].value / world_size / readings["step_time_seconds"].value


def mfu(readings: Mapping[str, Reading], world_size: int) -> float | None:
    """Model FLOPs utilization; None if MFU or HFU is above 1."""
    model, hardware = utilizations(readings, world_size)
    return model if max(model, hardware) <= 1 else None


def hfu(readings: Mapping[str, Reading], world_size: int) -> float | None:
    """Hardware FLOPs utilization; None if MFU or HFU is above 1."""
    model, hardware = utilizations(readings, world_size)
    return hardware if max(model, hardware) <= 1 else None


def utilizations(readings: Mapping[str, Reading], world_size: int) -> tuple[float, float]:
    """MFU and HFU, even if the peak is invalid."""
    model = flops_per_rank(readings, world_size) / readings["peak_flops"].value
    return model, model * readings["hardware_flop"].value / readings["model_flop"].value


METER = Flops
OF_TABLES = Materiality(0.001, "A release makes the table of rotary positions once for all rows. A layer is far more.")
METRICS = (
    Metric("unknown_operators", "operators without FLOPs", WHOLE, optional=True),
    Metric("model_flop", "model FLOP/step", FLOP, fold="sum", hold="exact", worse="different", materiality=OF_TABLES),
    Metric("hardware_flop", "hardware FLOP/step", FLOP, fold="sum", hold="exact", materiality=OF_TABLES),
    Metric("peak_flops", "peak FLOP/s/rank", FLOPS, fold="mean", worse="lower"),
    Metric("flops_per_rank", "FLOP/s/rank", FLOPS, worse="lower", column=3, derive=flops_per_rank),
    Metric("mfu", "MFU", RATIO, worse="lower", column=4, optional=True, derive=mfu, underived=ABOVE),
    Metric("hfu", "HFU", RATIO, worse="lower", optional=True, derive=hfu, underived=ABOVE),
)
