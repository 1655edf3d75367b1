"""For how many steps a learning-rate scheduler is made, and how many of them warm up: by its options, or its factor."""

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

# Attributes of schedulers that fall to the end: OneCycleLR, CosineAnnealingLR, DeepSpeed's WarmupDecayLR.
LENGTHS = ("total_steps", "T_max", "total_num_steps")
LENGTH, WARMUP = "num_training_steps", "num_warmup_steps"  # of the schedules of transformers
MOST_ASKED = 100_000  # steps, of which a factor of the user's own is asked
FLOOR = 1.3  # times the step at which a factor is at its least: a cosine comes to a floor before its end


class Lengths(NamedTuple):
    """In steps: of the whole schedule, 0 if it does not say or falls later than it was asked, and of its warm-up, in
    which the rate rises before it falls, 0 if it does neither.
    """

    whole: int
    warmup: int


def lengths_of(scheduler: Any, most: int) -> Lengths:
    """A factor of the user's own is asked for so many steps."""
    own = [(one, _factors(one, most)) for one in getattr(scheduler, "lr_lambdas", ())]
    said = int(max(_told(scheduler, LENGTH), *(getattr(scheduler, name, 0) for name in LENGTHS)))
    return Lengths(
        whole=said or max((fallen(*one) for one in own), default=0),
        warmup=_told(scheduler, WARMUP) or max((risen(factors) for _, factors in own), default=0),
    )


def risen(factors: Sequence[float]) -> int:
    """The first step of the highest factor, if later ones are lower."""
    top = max(factors, default=0.0)
    return list(factors).index(top) if factors and factors[-1] < top else 0


def fallen(factor: Callable[[int], float], factors: list[float]) -> int:
    """The step from which a user's factor stays as it is, having fallen by half or more; 0 if it does not within the
    first half of these: one that falls in stages may stay for some. One that rises again has come to its end in the
    middle of its lowest steps. If the function has a number that is a little larger than the first of them, then that.
    """
    if not factors:
        return 0
    first = factors.index(max(factors))
    lowest = min(factors[first:])
    start = factors.index(lowest, first)
    end = next((at for at in range(start, len(factors)) if factors[at] != lowest), 0)  # 0: it stays
    if lowest > factors[first] / 2 or start > len(factors) / 2:
        return 0
    own = (number for number in _numbers(factor) if start <= number <= FLOOR * start)
    return min(own, default=(start + end) // 2 if end else start)


def _factors(factor: Callable[[int], float], most: int) -> list[float]:
    try:
        return [float(factor(step)) for step in range(min(most, MOST_ASKED))]
    except Exception:  # it is asked for steps that training does not come to
        return []


def _numbers(factor: Any) -> Iterator[int]:
    """The whole numbers that a user's function reads from around it."""
    of_partial = (*factor.args, *factor.keywords.values()) if isinstance(factor, functools.partial) else ()
    try:
        read = inspect.getclosurevars(factor.func if isinstance(factor, functools.partial) else factor)
    except TypeError:  # of an object
        return
    values = (*of_partial, *read.nonlocals.values(), *read.globals.values())
    yield from (value for value in values if type(value) is int)


def _told(scheduler: Any, keyword: str) -> int:
    """What a schedule of transformers was told."""
    found = [getattr(one, "keywords", {}).get(keyword, 0) for one in getattr(scheduler, "lr_lambdas", ())]
    return int(max(found, default=0))
