"""All exact faults: where each is put, and by what the gate must show it. Red for a wrong reason is not enough.

Nothing here depends on a clock: stored times are replayed. Delays are in trials.py.
"""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from msgspec import DecodeError

from perfsuite.prove.selftest import edits, falsehoods
from perfsuite.prove.selftest.signs import LESS, MORE, Sign, about
from perfsuite.prove.selftest.trials import DDP
from perfsuite.records.measurement import STEP_TIME, Measurement
from perfsuite.records.verdict import Because, Status

FSDP = "gpt2_tiny-fsdp2-cpu_x2"
ZERO = "t5_tiny-zero2-cpu_x2"
CELLS = (DDP, FSDP, ZERO)
PEAK, LOSS, NORM, WORK_DONE = "peak_memory_bytes", "loss", "gradient_norm", "hardware_flop"
FULL = os.strerror(errno.ENOSPC)
REFUSED = "refused"  # instead of a verdict's status: the gate refuses to judge, with a reason
NOT_RED = "not red"  # instead of a verdict's status: a time may be the machine's
ALIKE = {  # faults of ranks that are caught in the same way as another of their kind
    "segmentation fault",
    "silent exit",
    "missing rank",
    "duplicated rank",
    "full disk of a rank",
    "zero samples",
    "lost sample",
    "parts do not add up",
    "another unit",
    "infinite loss",
    "data shifted by a step",
    "gradients summed, not averaged",
    "layer lost",
    "forward twice",
    "world size lost",
}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One fault. ``fault`` names the fault in the ranks; ``of_peak`` appends that share of the cell's peak to the name,
    in bytes. ``edit`` changes the bytes of the baseline's file (None: deletes it) before the cell is measured,
    ``meanwhile`` during it. ``told`` changes the baseline's measurement, which is then replayed. ``disk`` wraps all
    that the gate does.

    The verdict's status must be ``status``, and it must have the ``sign``. A baseline has one launch. If the fault
    ``hangs`` the ranks, they are ended early.
    """

    name: str
    kind: str
    where: str
    status: str
    sign: Sign
    cell: str = DDP
    fault: str = ""
    of_peak: float = 0
    edit: Callable[[bytes], bytes | None] | None = None
    meanwhile: Callable[[bytes], bytes] | None = None
    told: Callable[[Measurement], Measurement] | None = None
    disk: Callable[[], AbstractContextManager[object]] | None = None
    consent: str | None = None
    hangs: bool = False

    @property
    def quick(self) -> bool:
        """Whether it is tried by default: it costs no launch, or it ends early, on the cell of most others, and is not
        ``ALIKE``.
        """
        return not self.fault or (not self.hangs and self.cell == DDP and self.name not in ALIKE)


def control(cell: str) -> Case:
    """The cell without a fault: if it were red, a red cell would prove nothing."""
    sign = Sign(metric=PEAK, status=Status.OK)
    return Case(name="no fault", kind="control", where="nowhere", cell=cell, status=NOT_RED, sign=sign)


def _fault(kind: str, name: str, where: str, status: str, sign: Sign, fault: str, **more: Any) -> Case:
    module = "falsehoods" if hasattr(falsehoods, fault) else "faults"
    fault = f"perfsuite.prove.selftest.{module}:{fault}"
    return Case(name=name, kind=kind, where=where, status=status, sign=sign, fault=fault, **more)


_memory, _ranks, _training, _work, _engine, _result = (
    functools.partial(_fault, kind) for kind in ("memory", "ranks", "training", "work", "engine", "result")
)


def _baseline(
    name: str, where: str, status: str, sign: Sign, edit: Callable[[bytes], bytes | None], **more: Any
) -> Case:
    return Case(name=name, kind="baseline", where=where, status=status, sign=sign, edit=edit, **more)


def _stored(name: str, where: str, status: str, sign: Sign, **more: Any) -> Case:
    return Case(name=name, kind="stored time", where=where, status=status, sign=sign, **more)


STORED_TIMES = (
    _stored(
        "slow step",
        "+50 %, but nothing changed",
        "machine",
        Sign(metric=STEP_TIME, change=about(0.5), because=Because.SLOWER),
        told=edits.slower,
    ),
    _stored(
        "slow step",
        "+50 %, and transformers is another",
        "alarm",
        Sign(metric=STEP_TIME, change=about(0.5), because=Because.NOT_RULED_OUT),
        told=edits.slower,
        edit=edits.other_transformers,
    ),
    _stored(
        "milliseconds for seconds",
        "step time",
        "machine",
        Sign(metric=STEP_TIME, change=about(999.0)),
        told=edits.milliseconds,
    ),
    _stored(
        "foreign hardware",
        "the baseline's times, a tenth",
        "ok",
        Sign(metric=STEP_TIME, status=Status.NOT_HELD, because=Because.NO_TIMES),
        edit=edits.foreign,
    ),
)
RANKS = (
    _ranks("killed rank", "rank 1, backward", "failed", Sign(kind="killed", rank=1, names=("SIGKILL",)), "killed"),
    _ranks(
        "segmentation fault", "rank 1, optimizer", "failed", Sign(kind="killed", rank=1, names=("SIGSEGV",)), "segfault"
    ),
    _ranks("silent exit", "rank 1, forward", "failed", Sign(kind="raised", rank=1, names=("status 3",)), "exits"),
    _ranks(
        "exception",
        "rank 1, forward",
        "failed",
        Sign(kind="raised", rank=1, names=("ValueError", "forward", "step 2", "a fault put here on purpose")),
        "raises",
    ),
    _ranks(
        "hung rank",
        "rank 1, forward",
        "failed",
        Sign(kind="hung", rank=1, names=("forward", "step 2")),
        "hangs",
        hangs=True,
    ),
    _ranks(
        "stopped rank",
        "rank 1, forward",
        "failed",
        Sign(kind="hung", rank=1, names=("forward", "signals")),
        "stopped",
        hangs=True,
    ),
    _ranks(
        "missing rank", "rank 1's result", "failed", Sign(kind="result", rank=1, names=("rank1.json",)), "no_result"
    ),
    _ranks("duplicated rank", "rank 1's result", "failed", Sign(kind="result", names=("Rank 0",)), "twice_rank_0"),
    _ranks("another library", "rank 1", "failed", Sign(kind="result", rank=1, names=("rank 0",)), "other_library"),
)
RESULTS = (
    _result(
        "truncated result", "rank 1's file", "failed", Sign(kind="result", rank=1, names=("rank1.json",)), "torn_result"
    ),
    _result("full disk of a rank", "rank 1's file", "failed", Sign(kind="raised", rank=1, names=(FULL,)), "full_disk"),
    _result("missing metric", "rank 1", "failed", Sign(kind="result", names=(STEP_TIME, "rank 1")), "missing_metric"),
    _result("zero samples", "step time", "failed", Sign(kind="result", names=(STEP_TIME, "rank 0")), "no_samples"),
    _result("lost sample", "loss of rank 1", "failed", Sign(kind="result", names=(LOSS, "rank 1")), "fewer_samples"),
    _result("NaN metric", "rank 1", "failed", Sign(kind="raised", names=("peak_flops", "nan")), "nan_metric"),
    _result(
        "parts do not add up",
        "peak of rank 1",
        "failed",
        Sign(kind="result", names=(PEAK, "rank 1", "parts")),
        "parts_lost",
    ),
    _result(
        "another unit",
        "bytes in KiB",
        "improved",
        Sign(metric="parameters_bytes", change=about(1 / 1024 - 1)),
        "in_kibibytes",
    ),
    _result("clock going backwards", "every rank", "failed", Sign(kind="raised", names=("clock",)), "backward_clock"),
)
MEMORY = (
    _memory(
        "extra tensor",
        "alive throughout",
        "regressed",
        Sign(metric=PEAK, change=about(0.001)),
        "extra_",
        of_peak=0.001,
    ),
    _memory("leak", "a tensor per step", "failed", Sign(kind="raised", names=("leaks",)), "leak"),
    _memory("doubled activations", "autograd", "regressed", Sign(metric=PEAK, part="activations"), "keeps_copies"),
    _memory(
        "out of memory",
        "a device of 4 MB",
        "regressed",
        Sign(kind="oom", because=Because.OUTCOMES, facts={"recorded": "fits", "outcome": "oom", "missing_bytes": ...}),
        "small_device",
    ),
)
FROM_THE_FIRST = {"first": 0}  # step that differs
TRAINING = (
    _training("NaN loss", "a weight of rank 0", "failed", Sign(kind="raised", names=("nan", "step")), "nan"),
    _training(
        "infinite loss", "every rank", "failed", Sign(kind="raised", names=(LOSS, "inf", "step 0")), "infinite_loss"
    ),
    _training(
        "loss off by 0.05 %",
        "every step",
        "regressed",
        Sign(metric=LOSS, because=Because.STEP_DIFFERS, facts=FROM_THE_FIRST),
        "loss_off",
    ),
    _training("gradient norm off by 1 %", "every step", "regressed", Sign(metric=NORM, change=about(0.01)), "norm_off"),
    _training("gradients off by 1 %", "DDP, after their norm", "regressed", Sign(metric="update_error"), "update_off"),
    _training(
        "data shifted by a step",
        "batches",
        "regressed",
        Sign(metric=LOSS, because=Because.STEP_DIFFERS, facts=FROM_THE_FIRST),
        "data_shifted",
    ),
    _training(
        "gradients not reduced", "DDP", "failed", Sign(kind="raised", names=("not reduced", "ranks")), "no_reduction"
    ),
    _training(
        "gradients not reduced",
        "ZeRO-2, whose replicas agree",
        "regressed",
        Sign(metric=NORM, because=Because.STEP_DIFFERS, facts=FROM_THE_FIRST),
        "zero_no_reduction",
        cell=ZERO,
    ),
    _training(
        "gradients summed, not averaged",
        "DDP",
        "regressed",
        Sign(metric=NORM, change=about(1.0), because=Because.STEP_DIFFERS, facts=FROM_THE_FIRST),
        "sum_not_mean",
    ),
)
WORK = (
    _work(
        "layer lost",
        "the model's last",
        "regressed",
        Sign(metric=WORK_DONE, status=Status.IMPROVED, change=LESS),
        "layer_lost",
    ),
    _work(
        "half a batch",
        "every step",
        "regressed",
        Sign(metric=WORK_DONE, status=Status.IMPROVED, change=about(-0.5)),
        "half_batch",
    ),
    _work("forward twice", "all layers", "regressed", Sign(metric=WORK_DONE, change=MORE), "forward_twice"),
    _work(
        "communication doubled",
        "DDP's gradients",
        "regressed",
        Sign(metric="communication_bytes", change=about(1.0), part="all_reduce"),
        "reduced_twice",
    ),
)
ENGINES = (
    _engine(
        "engine lost", "DDP", "failed", Sign(kind="raised", names=("DistributedDataParallel", "GPT2LM")), "unwrapped"
    ),
    _engine("world size lost", "DDP", "failed", Sign(kind="raised", names=("ddp", "2 ranks", "has 1")), "alone"),
    _engine("sharding lost", "FSDP2", "failed", Sign(kind="raised", names=("fsdp2", "1/2")), "whole_shards", cell=FSDP),
)
BASELINES = (
    _baseline("deleted baseline", "the file", "missing", Sign(because=Because.NO_BASELINE), lambda text: None),
    _baseline("torn baseline", "half of the file", REFUSED, Sign(cause=DecodeError), edits.torn),
    _baseline("empty baseline", "the file", REFUSED, Sign(cause=DecodeError), lambda text: b""),
    _baseline("newer format", "the file", REFUSED, Sign(names=("format 999", "upgrade")), edits.newer),
    _baseline("another cell's baseline", "the file", REFUSED, Sign(names=("t5_tiny-ddp-cpu_x2",)), edits.renamed),
    _baseline("another world size", "the file", REFUSED, Sign(names=("measurement.world_size",)), edits.world_of_four),
    _baseline("edited number", "its peak", REFUSED, Sign(names=(f"{PEAK}.parts",)), edits.peak_edited),
    _baseline("edited number", "its step time", REFUSED, Sign(names=(f"{STEP_TIME}.value",)), edits.time_edited),
    _baseline("NaN", "its loss", REFUSED, Sign(cause=DecodeError), edits.nan),
    _baseline(
        "zero samples", "its loss", "missing", Sign(metric=LOSS, because=Because.NO_COMMON_STEP), edits.no_samples
    ),
    _baseline(
        "metric deleted",
        "its peak",
        "missing",
        Sign(metric=PEAK, because=Because.ABSENT, facts={"measured": True}),
        edits.peak_deleted,
    ),
    _baseline("stale baseline", "a larger peak", "improved", Sign(metric=PEAK), edits.peak_larger),
    _baseline("lowered peak", "a smaller peak", "regressed", Sign(metric=PEAK), edits.peak_smaller),
    _baseline(
        "other libraries",
        "smaller peak, other transformers",
        "regressed",
        Sign(metric=PEAK, changed="transformers"),
        edits.other_library,
    ),
    _baseline(
        "changed by another writer",
        "while the cell runs",
        REFUSED,
        Sign(names=("another writer",)),
        edits.peak_larger,
        meanwhile=edits.peak_smaller,
        consent="all",
    ),
    _baseline(
        "full disk",
        "as it is written",
        REFUSED,
        Sign(cause=OSError, names=(FULL,)),
        edits.peak_larger,
        disk=edits.full_disk,
        consent="all",
    ),
)
CASES = (*STORED_TIMES, *MEMORY, *TRAINING, *WORK, *ENGINES, *RANKS, *RESULTS, *BASELINES)
