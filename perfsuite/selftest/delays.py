"""What ranks do made slower on purpose, by a share of its own time: what the gate's power to detect is measured with.

A fault's name ends in its share, in percent: ``perfsuite.selftest.delays:slow_10`` makes every step 10 % slower.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perfsuite.training.session import Session

ONE_STEP_IN = 10
_now = time.perf_counter


def own_time(session: Session, trainer: Any, meters: Any) -> None:
    """The clock is the processor time of the rank's thread, most of which neighbours on a busy machine leave as it is.

    A slower step is seen all the same; what a rank waits for its siblings counts for them alone.
    """
    global _now
    from perfsuite.training.meters import clock, control  # the pace is of processor time anyway

    _now = time.thread_time
    for module in (clock, control):
        vars(module)["time"] = SimpleNamespace(perf_counter_ns=time.thread_time_ns)


def _spin(seconds: float) -> None:
    """Compute nothing of use: sleeping would leave the core to the siblings."""
    end = _now() + seconds
    while _now() < end:
        pass


def _step(share: float, session: Session, trainer: Any, meters: Any, one_in: int = 1) -> None:
    """Every rank computes, for that share of each step's time, nothing of use."""
    step, count = trainer.step, 0

    def slow_step(batch: Any) -> Any:
        nonlocal count
        count += 1
        begin = _now()
        outcome = step(batch)
        session.synchronize()
        if count % one_in == 0:
            _spin(share * (_now() - begin))
        return outcome

    trainer.step = slow_step


def _tail(share: float, session: Session, trainer: Any, meters: Any) -> None:
    """One step in ten is slower."""
    _step(share, session, trainer, meters, ONE_STEP_IN)


def _rank(share: float, session: Session, trainer: Any, meters: Any) -> None:
    """The steps of rank 1 alone are slower."""
    if session.rank == 1:
        _step(share, session, trainer, meters)


def _data(share: float, session: Session, trainer: Any, meters: Any) -> None:
    """Making a batch takes so much longer as a share of the step before it takes."""
    step, make, seconds = trainer.step, trainer.batch, 0.0

    def timed_step(batch: Any) -> Any:
        nonlocal seconds
        begin = _now()
        outcome = step(batch)
        session.synchronize()
        seconds = _now() - begin
        return outcome

    def slow_batch(number: int) -> Any:
        batch = make(number)
        _spin(share * seconds)
        return batch

    trainer.step, trainer.batch = timed_step, slow_batch


def _machine(share: float, session: Session, trainer: Any, meters: Any) -> None:
    """All that the ranks do between two synchronizations takes longer, the control's rounds as well as the steps."""
    synchronize, last = session.synchronize, _now()

    def slow_synchronize() -> None:
        nonlocal last
        synchronize()
        _spin(share * (_now() - last))
        last = _now()

    session.synchronize = slow_synchronize  # type: ignore[method-assign]


KINDS: dict[str, Callable[..., None]] = {
    "slow": _step,
    "tail": _tail,
    "rank": _rank,
    "data": _data,
    "machine": _machine,
}


def __getattr__(name: str) -> Callable[..., None]:
    kind, _, percent = name.partition("_")
    if kind not in KINDS or not percent.isdecimal():
        raise AttributeError(f"no delay is named {name!r}: write e.g. slow_10, of {', '.join(KINDS)}")
    return functools.partial(KINDS[kind], int(percent) / 100)
