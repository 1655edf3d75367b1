"""How many micro-batches each update adds up, and whether some are left over from the epoch before."""

from statistics import median_low
from typing import NamedTuple


class Overfull(NamedTuple):
    """A step that adds up more micro-batches than those before and after it, and where an epoch ended meanwhile."""

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

    def overfull(self) -> Overfull | None:
        """The first of those steps, if each other step has as many as usual."""
        if len(self._counts) < 4:  # too few to know what is usual
            return None
        usual = median_low(self._counts)
        if any(count != usual for step, count in enumerate(self._counts[:-1]) if step not in self._crossing):
            return None
        more = (step for step in sorted(self._crossing) if step < len(self._counts) and self._counts[step] > usual > 0)
        return next((Overfull(step + 1, self._counts[step], usual) for step in more), None)
