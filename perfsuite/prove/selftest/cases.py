"""All exact faults: where each is put, and the message that the gate must give. Red for a wrong reason is not enough.

Nothing here depends on a clock: stored times are replayed. Delays are in trials.py.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from perfsuite.prove.selftest import edits, falsehoods
from perfsuite.prove.selftest.trials import DDP
from perfsuite.records.measurement import Measurement

FSDP = "gpt2_tiny-fsdp2-cpu_x2"
ZERO = "t5_tiny-zero2-cpu_x2"
CELLS = (DDP, FSDP, ZERO)
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

    The verdict's status must be ``status``, and its text must match the regular expression ``says``. A baseline has one
    launch. If the fault ``hangs`` the ranks, they are ended early.
    """

    name: str
    kind: str
    where: str
    status: str
    says: str
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
    return Case(
        name="no fault", kind="control", where="nowhere", cell=cell, status=NOT_RED, says=r"peak memory .* ok\b"
    )


def _fault(kind: str, name: str, where: str, status: str, says: str, fault: str, **more: Any) -> Case:
    module = "falsehoods" if hasattr(falsehoods, fault) else "faults"
    fault = f"perfsuite.prove.selftest.{module}:{fault}"
    return Case(name=name, kind=kind, where=where, status=status, says=says, fault=fault, **more)


_memory, _ranks, _training, _work, _engine, _result = (
    functools.partial(_fault, kind) for kind in ("memory", "ranks", "training", "work", "engine", "result")
)


def _baseline(
    name: str, where: str, status: str, says: str, edit: Callable[[bytes], bytes | None], **more: Any
) -> Case:
    return Case(name=name, kind="baseline", where=where, status=status, says=says, edit=edit, **more)


def _stored(name: str, where: str, status: str, says: str, **more: Any) -> Case:
    return Case(name=name, kind="stored time", where=where, status=status, says=says, **more)


STORED_TIMES = (
    _stored(
        "slow step",
        "+50 %, but nothing changed",
        "machine",
        r"step time .*\+50\.0 % .* machine .*same machine",
        told=edits.slower,
    ),
    _stored(
        "slow step",
        "+50 %, and transformers is another",
        "alarm",
        r"step time .*\+50\.0 % .* alarm .*cannot rule out",
        told=edits.slower,
        edit=edits.other_transformers,
    ),
    _stored(
        "milliseconds for seconds",
        "step time",
        "machine",
        r"step time .*\+99900\.0 % .* machine ",
        told=edits.milliseconds,
    ),
    _stored(
        "foreign hardware",
        "the baseline's times, a tenth",
        "ok",
        "not held: step time.*no times from this machine",
        edit=edits.foreign,
    ),
)
RANKS = (
    _ranks("killed rank", "rank 1, backward", "failed", "Rank 1 was killed by SIGKILL", "killed"),
    _ranks("segmentation fault", "rank 1, optimizer", "failed", "Rank 1 was killed by SIGSEGV", "segfault"),
    _ranks("silent exit", "rank 1, forward", "failed", "Rank 1 exited with status 3 and no message", "exits"),
    _ranks(
        "exception",
        "rank 1, forward",
        "failed",
        "Rank 1: ValueError in forward of step 2: a fault put here on purpose",
        "raises",
    ),
    _ranks("hung rank", "rank 1, forward", "failed", "Rank 1 hangs in forward of step 2", "hangs", hangs=True),
    _ranks(
        "stopped rank",
        "rank 1, forward",
        "failed",
        "Rank 1 hangs in .*does not answer signals",
        "stopped",
        hangs=True,
    ),
    _ranks(
        "missing rank",
        "rank 1's result",
        "failed",
        "Rank 1 exited successfully but left no complete result",
        "no_result",
    ),
    _ranks(
        "duplicated rank",
        "rank 1's result",
        "failed",
        "Rank 0 of 2 left 2 results instead of one",
        "twice_rank_0",
    ),
    _ranks("another library", "rank 1", "failed", "Rank 1 runs .*, but rank 0 runs", "other_library"),
)
RESULTS = (
    _result("truncated result", "rank 1's file", "failed", "Rank 1 exited successfully but left no", "torn_result"),
    _result("full disk of a rank", "rank 1's file", "failed", "Rank 1: .*No space left on device", "full_disk"),
    _result("missing metric", "rank 1", "failed", "step_time_seconds is missing on rank 1", "missing_metric"),
    _result("zero samples", "step time", "failed", "step_time_seconds has no sample on rank 0", "no_samples"),
    _result("lost sample", "loss of rank 1", "failed", r"loss has \d+ samples on rank 1, but \d+", "fewer_samples"),
    _result("NaN metric", "rank 1", "failed", "peak_flops.* is nan", "nan_metric"),
    _result("parts do not add up", "peak of rank 1", "failed", "peak_memory_bytes on rank 1 .*parts sum", "parts_lost"),
    _result("another unit", "bytes in KiB", "improved", "parameters +.*-99.9 %.* IMPROVED", "in_kibibytes"),
    _result("clock going backwards", "every rank", "failed", "The clock went from", "backward_clock"),
)
MEMORY = (
    _memory(
        "extra tensor",
        "alive throughout",
        "regressed",
        r"peak memory .*\+0\.1 % .*REGRESSED",
        "extra_",
        of_peak=0.001,
    ),
    _memory("leak", "a tensor per step", "failed", "Memory leaks: ", "leak"),
    _memory(
        "doubled activations", "autograd", "regressed", r"peak memory .*REGRESSED .*activations \+", "keeps_copies"
    ),
    _memory(
        "out of memory", "a device of 4 MB", "regressed", "fits -> oom, at least .* missing.*: Rank", "small_device"
    ),
)
TRAINING = (
    _training("NaN loss", "a weight of rank 0", "failed", r"The (loss|gradient norm) is nan in step \d", "nan"),
    _training("infinite loss", "every rank", "failed", "The loss is inf in step 0", "infinite_loss"),
    _training("loss off by 0.05 %", "every step", "regressed", "loss .*REGRESSED .*differs in step 0", "loss_off"),
    _training(
        "gradient norm off by 1 %", "every step", "regressed", r"gradient norm .*\+1.0 % .*REGRESSED", "norm_off"
    ),
    _training("gradients off by 1 %", "DDP, after their norm", "regressed", r"update error .*REGRESSED", "update_off"),
    _training("data shifted by a step", "batches", "regressed", "loss .*REGRESSED .*differs in step 0", "data_shifted"),
    _training("gradients not reduced", "DDP", "failed", "gradients are not reduced over the ranks", "no_reduction"),
    _training(
        "gradients not reduced",
        "ZeRO-2, whose replicas agree",
        "regressed",
        "gradient norm .*REGRESSED .*differs in step 0",
        "zero_no_reduction",
        cell=ZERO,
    ),
    _training(
        "gradients summed, not averaged",
        "DDP",
        "regressed",
        r"gradient norm .*\+100.0 % .*REGRESSED .*differs in step 0",
        "sum_not_mean",
    ),
)
WORK = (
    _work("layer lost", "the model's last", "regressed", r"hardware FLOP/step .*-\d+.\d % ", "layer_lost"),
    _work("half a batch", "every step", "regressed", r"hardware FLOP/step .*-50.0 % ", "half_batch"),
    _work("forward twice", "all layers", "regressed", r"hardware FLOP/step .*\+\d+.\d % .*REGRESSED", "forward_twice"),
    _work(
        "communication doubled",
        "DDP's gradients",
        "regressed",
        r"communication .*\+100.0 % .*REGRESSED .*all reduce \+",
        "reduced_twice",
    ),
)
ENGINES = (
    _engine("engine lost", "DDP", "failed", "ddp must run in DistributedDataParallel, but this is GPT2LM", "unwrapped"),
    _engine("world size lost", "DDP", "failed", "ddp must reduce over 2 ranks, but its process group has 1", "alone"),
    _engine("sharding lost", "FSDP2", "failed", "fsdp2 must hold 1/2 of .* has all of it", "whole_shards", cell=FSDP),
)
BASELINES = (
    _baseline("deleted baseline", "the file", "missing", "there is no baseline", lambda text: None),
    _baseline("torn baseline", "half of the file", REFUSED, "is not a baseline: ", edits.torn),
    _baseline("empty baseline", "the file", REFUSED, "is not a baseline: ", lambda text: b""),
    _baseline("newer format", "the file", REFUSED, "format 999, written by a newer perfsuite: upgrade", edits.newer),
    _baseline("another cell's baseline", "the file", REFUSED, "is not the baseline of .*: cell is", edits.renamed),
    _baseline("another world size", "the file", REFUSED, "world_size is 4, the cell has 2 ranks", edits.world_of_four),
    _baseline("edited number", "its peak", REFUSED, "peak_memory_bytes.parts sum to .*, not to the", edits.peak_edited),
    _baseline("edited number", "its step time", REFUSED, "neither the median nor the last", edits.time_edited),
    _baseline("NaN", "its loss", REFUSED, "is not a baseline: ", edits.nan),
    _baseline("zero samples", "its loss", "missing", "loss .*MISSING .*no step in common", edits.no_samples),
    _baseline("metric deleted", "its peak", "missing", "peak memory .*MISSING .*baseline lacks it", edits.peak_deleted),
    _baseline("stale baseline", "a larger peak", "improved", "peak memory .* IMPROVED", edits.peak_larger),
    _baseline("lowered peak", "a smaller peak", "regressed", "peak memory .*REGRESSED", edits.peak_smaller),
    _baseline(
        "other libraries",
        "smaller peak, other transformers",
        "regressed",
        "(?s)peak memory .*REGRESSED.*changed since the baseline: transformers 1.0.0 -> ",
        edits.other_library,
    ),
    _baseline(
        "changed by another writer",
        "while the cell runs",
        REFUSED,
        "was changed by another writer since it was read",
        edits.peak_larger,
        meanwhile=edits.peak_smaller,
        consent="all",
    ),
    _baseline(
        "full disk",
        "as it is written",
        REFUSED,
        "cannot be written: No space left on device",
        edits.peak_larger,
        disk=edits.full_disk,
        consent="all",
    ),
)
CASES = (*STORED_TIMES, *MEMORY, *TRAINING, *WORK, *ENGINES, *RANKS, *RESULTS, *BASELINES)
