"""Which iterations make a step: a loop is its shortest repeating cycle of events.

An iteration ends when the first optimizer has stepped. Most steps are one iteration: ``DFBO0``. Several optimizers with
different numbers of updates need more: five updates of a critic and one of a generator make a step of five iterations.
So nothing repeats before each optimizer has stepped that the script has made.
"""

from collections.abc import Sequence

from perfsuite.records.step_kinds import FEWEST_SEEN

MOST_PERIOD = 8
MOST = 3 * MOST_PERIOD  # iterations without a repetition: there is none


def period_of(iterations: Sequence[str]) -> int | None:
    """The number of iterations in a step, by the events of each; None if they do not repeat yet."""
    later = list(iterations[1:])
    for period in range(1, MOST_PERIOD + 1):
        if len(later) < max(FEWEST_SEEN - 1, 2 * period):
            return None
        if all(later[at] == later[at - period] for at in range(period, len(later))):
            return period
    return None
