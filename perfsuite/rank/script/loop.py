"""Which iterations make a step: a loop is its shortest repeating cycle of events.

An iteration ends when the first optimizer has stepped. Most steps are one iteration: ``DFBO0``. Several optimizers with
different numbers of updates need more: five updates of a critic and one of a generator make a step of five iterations.
So nothing repeats before each optimizer has stepped that the script has made.

Some iterations have more than others: a script logs, samples or evaluates every n-th step. If that is rarer than the
longest period, it is an extra, and the period is that of the iterations without it.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfsuite.records.step_kinds import FEWEST_SEEN

MOST_PERIOD = 8
MOST = 3 * MOST_PERIOD  # iterations without a repetition: there is none
EXTRAS = {"D": "data", "F": "forward", "R": "generation"}  # events that train nothing
FILE = "rank{rank}.loop"
TELL_SECONDS = 1.0  # how often a rank that waits for the others reports that it does not hang
MOST_SECONDS = 120.0  # for which it does so: two ranks that wait for each other hang


@dataclass(frozen=True)
class ScriptLoop:
    """The number of iterations in a step, and the events of each of them without extras."""

    period: int
    plain: tuple[str, ...]


def loop_of(iterations: Sequence[str]) -> ScriptLoop | None:
    """The loop that these iterations show, by the events of each; None if they do not repeat yet."""
    later = list(iterations[1:])
    for period in range(1, MOST_PERIOD + 1):
        if len(later) < max(FEWEST_SEEN - 1, 2 * period):
            break
        if _repeats(later, period) or (
            len(later) >= 2 * period + MOST_PERIOD and _repeats(later[-period - MOST_PERIOD :], period)
        ):
            return ScriptLoop(period, tuple(later[-period:]))
    if len(iterations) <= MOST:
        return None
    loops = (_with_extras(later, period) for period in range(1, MOST_PERIOD + 1))
    return next(filter(None, loops), None)


def _repeats(iterations: Sequence[str], period: int) -> bool:
    return all(iterations[at] == iterations[at - period] for at in range(period, len(iterations)))


def _with_extras(iterations: Sequence[str], period: int) -> ScriptLoop | None:
    """The loop of this period, if most iterations at each place are equal and the others have extras alone."""
    plain = []
    for place in range(period):
        here = iterations[place::period]
        usual = max(here, key=here.count)
        if here.count(usual) <= len(here) / 2 or not all(extras(one, usual) is not None for one in here):
            return None
        plain.append(usual)
    shift = len(iterations) % period
    return ScriptLoop(period, (*plain[shift:], *plain[:shift]))


def extras(iteration: str, plain: str) -> list[str] | None:
    """What an iteration does beside the ``plain`` one: names of EXTRAS. None if it trains otherwise.

    The events of several ranks are compared rank by rank.
    """
    found = []
    ranks, usual = iteration.split("|"), plain.split("|")
    if len(ranks) != len(usual):
        return None
    for mine, own in zip(ranks, usual, strict=True):
        left = list(own)
        for event in mine:
            if left and event == left[0]:
                left.pop(0)
            elif event in EXTRAS:
                found.append(EXTRAS[event])
            else:
                return None
        if left:
            return None
    return found


class Shared:
    """The iterations of all ranks, one line of each rank's file after the other. One rank may evaluate alone, and all
    must agree where a step ends.
    """

    def __init__(self, folder: Path, rank: int, ranks: int, wait: Callable[[str], None]) -> None:
        self._folder, self._rank, self._ranks, self._wait = folder, rank, ranks, wait
        self._told = 0

    def iteration(self, events: str, waits: bool) -> tuple[str, bool]:
        """The events of all ranks in this iteration, and whether any rank ``waits`` for more of it."""
        if self._ranks == 1:
            return events, waits
        with (self._folder / FILE.format(rank=self._rank)).open("a") as file:
            file.write(f"{events} {int(waits)}\n")
        lines = [self._line(rank) for rank in range(self._ranks)]
        self._told += 1
        return "|".join(line.partition(" ")[0] for line in lines), any(line.endswith("1") for line in lines)

    def _line(self, rank: int) -> str:
        """A rank's line of this iteration, as soon as it is there."""
        begun = told = time.monotonic()
        while True:
            try:
                lines = (self._folder / FILE.format(rank=rank)).read_text().split("\n")
            except OSError:
                lines = []
            if len(lines) > self._told + 1:  # the last one has no end yet
                return lines[self._told]
            if told - begun < MOST_SECONDS and time.monotonic() - told > TELL_SECONDS:
                told = time.monotonic()
                self._wait("turn")
            time.sleep(0.001)
