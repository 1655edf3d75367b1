"""How many micro-batches each update adds up: fewer at first, or some that are left over from the epoch before."""

from statistics import median_low
from typing import NamedTuple

FEWEST = 4  # steps that tell what is usual


class UnevenStep(NamedTuple):
    """A step that adds up more or fewer micro-batches than usual. Steps count from 1."""

    step: int
    number: int
    usual: int


class MicroBatches:
    """Counts the backward passes of each step."""

    def __init__(self) -> None:
        self._counts: list[int] = []
        self._crossing: set[int] = set()  # steps in which an epoch ended after the first backward
        self._now = 0

    def goes_backward(self) -> None:
        """One more is added."""
        self._now += 1

    def epoch_ends(self) -> None:
        """The loader has no more."""
        if self._now:
            self._crossing.add(len(self._counts))

    def step_ends(self) -> None:
        """The optimizer has used them."""
        self._counts.append(self._now)
        self._now = 0

    def uneven(self, optimizers: int) -> UnevenStep | None:
        """The first step, if it has fewer than all others, or one that has what an epoch left over; None if there is
        neither, or steps differ in other ways, too. Where several optimizers take turns, a first step has less.
        """
        if len(self._counts) < FEWEST:
            return None
        usual = median_low(self._counts)
        unlike = [step for step, count in enumerate(self._counts[:-1]) if count != usual and step not in self._crossing]
        if unlike == [0] and 0 < self._counts[0] < usual and optimizers < 2:
            return UnevenStep(1, self._counts[0], usual)
        if unlike:
            return None
        more = (step for step in sorted(self._crossing) if step < len(self._counts) and self._counts[step] > usual > 0)
        return next((UnevenStep(step + 1, self._counts[step], usual) for step in more), None)
