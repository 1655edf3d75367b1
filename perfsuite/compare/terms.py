"""The terms for comparing the times of a run: the slow-down that matters, the expected noise, the accepted errors.

Error rates are for a whole run, over every cell and every timed metric, by Bonferroni's bound: they are upper bounds,
however the numbers depend on one another. `python benchmarks/error_rates.py` simulates both.
"""

from dataclasses import dataclass, replace

from perfsuite.catalog.cell_id import CellId
from perfsuite.catalog.definitions import CPU_TIME_TOLERANCE, DEDICATED_TIME_TOLERANCE, Metric

FALSE_ALARMS = 0.5  # expected per run without a cause: each is one trial, or one time called "machine"
MOST_ALARM_RATE = 0.05  # of a single time
FALSE_REDS = 0.05  # expected per run without a cause
MOST_RED_RATE = 0.01  # of a single cell
TIMED = 4  # timed metrics of a cell: fenced, unfenced and iteration time, processor time


@dataclass(frozen=True, kw_only=True)
class Terms:
    """``tolerance`` is the smallest relative slow-down that must be detected, ``spread`` the known relative spread of
    runs on such hardware, ``cells`` the number of cells in the run. ``coarse`` widens the tolerance of a time that has
    few samples.
    """

    tolerance: float
    spread: float
    cells: int = 1
    coarse: float = 1.0

    def tolerance_of(self, metric: Metric) -> float:
        """The smallest relative slow-down of this time that must be detected."""
        return self.tolerance * (self.coarse if metric.coarse else 1.0)

    def of_run(self, cells: int) -> "Terms":
        """The same terms for a run of so many cells."""
        return replace(self, cells=max(1, cells))

    @property
    def alarm_rate(self) -> float:
        """The chance that one time is an alarm without a cause."""
        return min(MOST_ALARM_RATE, FALSE_ALARMS / (self.cells * TIMED))

    @property
    def red_rate(self) -> float:
        """The chance that a trial finds one time slower without a cause."""
        return min(MOST_RED_RATE, FALSE_REDS / self.cells) / TIMED


SHARED = Terms(tolerance=CPU_TIME_TOLERANCE, spread=0.10, coarse=3.0)  # CPUs, shared with other processes
DEDICATED = Terms(tolerance=DEDICATED_TIME_TOLERANCE, spread=0.01)  # accelerators without other users


def terms_of(cell_id: str, tolerance: float | None = None) -> Terms:
    """The terms of a cell's class of hardware, or with the user's own tolerance."""
    terms = SHARED if CellId.split(cell_id).is_on_cpu else DEDICATED
    return terms if tolerance is None else replace(terms, tolerance=tolerance)
