"""A limit of time for everything inside a block: what is waited for there ends when the limit is used up.

    with limit(120.0, "the 2 min of --minutes"):
        measure(cell)

Processes, locks and requests are waited for in many places, far below the one that knows the limit. Each of them calls
check() while it waits, and before it starts something. So the limit is a context variable: no function in between names
it. A thread that waits must run in a copy of the context (run/duet.py).
"""

import math
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from typing import TypeVar

from perfsuite.errors import PerfsuiteError

LOOK_SECONDS = 0.2  # between two looks at the clock, where a wait has no interval of its own
T = TypeVar("T")


class OutOfTime(PerfsuiteError):
    """The limit is used up. What was begun inside it has ended and left nothing."""


@dataclass
class _Limit:
    """``at`` is a time.monotonic(), ``outer`` the limit around this one. A ``patient`` one does not count the time that
    others use the machine, and does not end what is begun in a block of ``let_finish``.
    """

    at: float
    what: str
    tick: Callable[[], None]
    outer: "_Limit | None"
    patient: bool


_INNERMOST: ContextVar[_Limit | None] = ContextVar("perfsuite_limit", default=None)
_FINISHES: ContextVar[bool] = ContextVar("perfsuite_finishes", default=False)


@contextmanager
def limit(
    seconds: float, what: str, tick: Callable[[], None] = lambda: None, *, patient: bool = False
) -> Iterator[None]:
    """Let everything inside end after ``seconds``, or with a limit around it that ends earlier. ``what`` begins the
    sentence of OutOfTime, as in "the 2 min of --minutes". ``tick`` is called while something is waited for. A
    ``patient`` limit does not count the time of ``excused``, and lets the block of ``let_finish`` come to its end.
    """
    token = _INNERMOST.set(_Limit(time.monotonic() + seconds, what, tick, _INNERMOST.get(), patient))
    try:
        yield
    finally:
        _INNERMOST.reset(token)


@contextmanager
def excused() -> Iterator[None]:
    """The time in this block, in which others use the machine, does not count for patient limits."""
    begin = time.monotonic()
    try:
        yield
    finally:
        for one in _limits():
            one.at += (time.monotonic() - begin) * one.patient


@contextmanager
def let_finish(seconds: float = 0.0) -> Iterator[None]:
    """Raise OutOfTime if the limit is used up. If it is a patient one, what is in this block comes to its end, so it
    also counts as used up if it has less than ``seconds`` left, which the block is expected to take.
    """
    check(seconds)
    token = _FINISHES.set(True)
    try:
        yield
    finally:
        _FINISHES.reset(token)


@contextmanager
def unlimited() -> Iterator[None]:
    """No limit holds in this block, which keeps what was made in time."""
    token = _INNERMOST.set(None)
    try:
        yield
    finally:
        _INNERMOST.reset(token)


def left() -> float:
    """The seconds that are left, 0 if the limit is used up; infinite without a limit."""
    return max(0.0, min((one.at for one in _limits()), default=math.inf) - time.monotonic())


def look() -> float:
    """How long a wait may last until the next check(); infinite without a limit, for a wait that need not look."""
    return min(LOOK_SECONDS, left() or LOOK_SECONDS) if _INNERMOST.get() else math.inf


def check(seconds: float = 0.0) -> None:
    """Raise OutOfTime if the limit is used up, or a patient one has less than ``seconds`` left. Called before something
    is started, and while it is waited for.
    """
    now = time.monotonic()
    for one in _limits():
        one.tick()
        if now + seconds * one.patient >= one.at and not (one.patient and _FINISHES.get()):
            raise OutOfTime(f"{one.what} are used up")


def abandonable(function: Callable[[], T]) -> T:
    """The function's answer or exception. It has a thread of its own, which is left behind when the limit is used up:
    for a request to a server, which nothing can end.
    """
    if _INNERMOST.get() is None:
        return function()
    check()
    answer: Future[T] = Future()

    def ask() -> None:
        try:
            answer.set_result(function())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=copy_context().run, args=(ask,), daemon=True).start()
    while not wait([answer], timeout=look()).done:
        check()
    return answer.result()


def _limits() -> Iterator[_Limit]:
    one = _INNERMOST.get()
    while one:
        yield one
        one = one.outer
