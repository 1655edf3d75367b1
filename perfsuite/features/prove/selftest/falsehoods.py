"""Faults in the ranks' reports about themselves: each is called in every rank after its engine is prepared."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec

from perfsuite.records import codec
from perfsuite.records.sample import RankSample, Reading

if TYPE_CHECKING:
    from perfsuite.rank.session import Session


def _say(meters: Any, name: str, change: Callable[[Reading], Reading | None]) -> None:
    """From now on this rank reports the changed reading of a metric; None: no reading."""

    def falsified(tell: Callable[[], dict[str, Reading]]) -> dict[str, Reading]:
        readings = tell()
        if name in readings:
            changed = change(readings.pop(name))
            readings |= {name: changed} if changed else {}
        return readings

    for meter in meters:
        meter.readings = lambda tell=meter.readings: falsified(tell)


def missing_metric(session: Session, trainer: Any, meters: Any) -> None:
    """Rank 1 does not report its step time."""
    if session.rank == 1:
        _say(meters, "step_time_seconds", lambda reading: None)


def no_samples(session: Session, trainer: Any, meters: Any) -> None:
    """No step's time is kept."""
    _say(meters, "step_time_seconds", lambda reading: msgspec.structs.replace(reading, samples=[]))


def fewer_samples(session: Session, trainer: Any, meters: Any) -> None:
    """Rank 1 has lost the loss of one step."""
    if session.rank == 1:
        _say(meters, "loss", lambda reading: msgspec.structs.replace(reading, samples=reading.samples[1:]))


def parts_lost(session: Session, trainer: Any, meters: Any) -> None:
    """A part of rank 1's peak is missing from its anatomy."""

    def without_activations(reading: Reading) -> Reading:
        parts = {name: size for name, size in reading.parts.items() if name != "activations"}
        return msgspec.structs.replace(reading, parts=parts)

    if session.rank == 1:
        _say(meters, "peak_memory_bytes", without_activations)


def in_kibibytes(session: Session, trainer: Any, meters: Any) -> None:
    """The parameters' size is reported in another unit."""
    _say(meters, "parameters_bytes", lambda reading: msgspec.structs.replace(reading, value=int(reading.value) // 1024))


def nan_metric(session: Session, trainer: Any, meters: Any) -> None:
    """Rank 1's speed is NaN."""
    if session.rank == 1:
        _say(meters, "peak_flops", lambda reading: msgspec.structs.replace(reading, value=float("nan")))


def _exchange(module: ModuleType, name: str, other: object) -> None:
    """Raises KeyError if the module has no such name: a fault that changes nothing would prove nothing."""
    vars(module)[name]
    vars(module)[name] = other


def backward_clock(session: Session, trainer: Any, meters: Any) -> None:
    """The clock goes backwards."""
    from perfsuite.meters import clock

    ticks = iter(range(10**6, 0, -1))
    _exchange(clock, "perf_counter_ns", lambda: next(ticks))


def _write(change: Callable[[Path, RankSample], object]) -> None:
    """From now on this rank writes its result in that way."""
    import perfsuite.rank.main as rank_module

    _exchange(rank_module, "codec", SimpleNamespace(write=change))


def torn_result(session: Session, trainer: Any, meters: Any) -> None:
    """Rank 1 leaves half a result and reports success."""
    if session.rank == 1:
        _write(lambda path, sample: path.write_bytes(codec.encode(sample)[:100]))


def no_result(session: Session, trainer: Any, meters: Any) -> None:
    """Rank 1 leaves no result and reports success."""
    if session.rank == 1:
        _write(lambda path, sample: None)


def twice_rank_0(session: Session, trainer: Any, meters: Any) -> None:
    """Rank 1 takes itself for rank 0."""
    _write(lambda path, sample: codec.write(path, msgspec.structs.replace(sample, rank=0)))


def other_library(session: Session, trainer: Any, meters: Any) -> None:
    """Rank 1 runs another torch."""
    versions = {"torch": "1.0.0"}
    if session.rank == 1:
        _write(lambda path, sample: codec.write(path, msgspec.structs.replace(sample, versions=versions)))


def full_disk(session: Session, trainer: Any, meters: Any) -> None:
    """Rank 1's disk is full when it writes its result, but not when it then writes its failure."""

    def full(handle: int) -> None:
        os.fsync = synchronize
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    synchronize = os.fsync
    if session.rank == 1 and meters:  # once, not again for the engine whose update is compared
        os.fsync = full  # type: ignore[assignment]
