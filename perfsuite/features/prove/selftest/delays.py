"""Slows ranks down by a share of their own time, to measure which slow-downs the gate can detect.

A fault's name ends in its share, in percent: ``slow_10`` makes every step 10 % slower.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from perfsuite.features.prove.selftest import start_faults

if TYPE_CHECKING:
    from perfsuite.rank.session import Session


def _spin(seconds: float) -> None:
    """Compute something useless: sleeping would leave the core to the other ranks."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def _step(share: float, session: Session, trainer: Any, meters: Any) -> None:
    """Every rank computes something useless for that share of each step's time."""
    step = trainer.step

    def slow_step(batch: Any) -> Any:
        begin = time.perf_counter()
        outcome = step(batch)
        session.synchronize()
        _spin(share * (time.perf_counter() - begin))
        return outcome

    trainer.step = slow_step


def _rank(share: float, session: Session, trainer: Any, meters: Any) -> None:
    """Only the steps of rank 1 are slower."""
    if session.rank == 1:
        _step(share, session, trainer, meters)


def _data(share: float, session: Session, trainer: Any, meters: Any) -> None:
    """Making a batch takes longer, by that share of the previous step's time."""
    step, make, seconds = trainer.step, trainer.batch, 0.0

    def timed_step(batch: Any) -> Any:
        nonlocal seconds
        begin = time.perf_counter()
        outcome = step(batch)
        session.synchronize()
        seconds = time.perf_counter() - begin
        return outcome

    def slow_batch(number: int) -> Any:
        batch = make(number)
        _spin(share * seconds)
        return batch

    trainer.step, trainer.batch = timed_step, slow_batch


def _import(share: float, session: Session, trainer: Any, meters: Any) -> None:
    """A cold start's imports take longer."""
    start_faults.slow_import(session, trainer, meters, share)


KINDS: dict[str, Callable[..., None]] = {
    "slow": _step,
    "rank": _rank,
    "data": _data,
    "import": _import,
}


def __getattr__(name: str) -> Callable[..., None]:
    kind, _, percent = name.partition("_")
    if kind not in KINDS or not percent.isdecimal():
        raise AttributeError(f"no delay is named {name!r}: write e.g. slow_10, of {', '.join(KINDS)}")
    return functools.partial(KINDS[kind], int(percent) / 100)
