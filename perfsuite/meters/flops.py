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
trains on. An operator that the counter does not know, and that computes more than a number for each number, is named
(unknown_operators).
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from perfsuite.catalog.definitions import Materiality, Metric
from perfsuite.catalog.processes import WITH_OWN, WITH_WEIGHTS
from perfsuite.errors import Unsupported
from perfsuite.meters._flop_counter import flop_counter, hole
from perfsuite.meters._matmul_peak import measure_matmul
from perfsuite.meters._model_flop import NONE_KNOWN, count_model_flop
from perfsuite.rank.forked import NoAnswer
from perfsuite.rank.meter import Meter
from perfsuite.rank.trainer import Trainer
from perfsuite.records.sample import Reading
from perfsuite.records.step_kinds import StepKind
from perfsuite.system.units import FLOP, FLOPS, RATIO, WHOLE

if TYPE_CHECKING:
    from perfsuite.rank.session import Session

_DTYPES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
ABOVE = "it would be above 100 %, so the peak that was measured is too low"


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
        self.counter = flop_counter(lambda: self.trainer.recomputing, lambda: self.phase)
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
