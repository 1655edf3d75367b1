"""How much a stored baseline is still worth, without measuring anything.

Standings, worst first
    refused       the file cannot be read
        orphaned      no cell of this project has this baseline any more
        unknown       its model is not in the catalog, and tests that may define it were not collected
        incomparable  it has no times of this machine or driver
        stale         recorded with other library versions than those installed here
    sound         none of these
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from perfsuite.catalog.definitions import Metric
from perfsuite.compare.pool import runs_of
from perfsuite.compare.terms import Terms
from perfsuite.compare.timing import pool_of, smallest_effect
from perfsuite.records.baseline import Baseline

ORDER = ("refused", "orphaned", "unknown", "incomparable", "stale", "sound")


@dataclass(frozen=True)
class Standing:
    """``reasons`` are (standing, why) for all that apply, the worst first; none for a sound baseline. ``runs`` is the
    number of runs whose times it keeps. ``detects`` is the relative slow-down that every time can show without a trial,
    None if no time can show any.
    """

    reasons: tuple[tuple[str, str], ...]
    runs: int = 0
    detects: float | None = None

    @property
    def status(self) -> str:
        return self.reasons[0][0] if self.reasons else "sound"


def standing(
    baseline: Baseline,
    metrics: Iterable[Metric],
    terms: Terms,
    told: Mapping[str, str],
) -> Standing:
    """``told`` says by status why it has it: why it is orphaned, why that is unknown, why its machine is not this one,
    and which versions differ here; empty where a status does not apply.
    """
    reasons = tuple((status, told[status]) for status in ORDER if told.get(status))
    metrics = list(metrics)
    runs = runs_of(baseline, metrics)
    effects = []
    for metric in metrics:
        values = [run.values[metric.name] for run in runs if metric.is_time and metric.name in run.values]
        if values and min(values) > 0:
            effects.append(smallest_effect(metric, pool_of(values, metric.sign, terms), terms))
    return Standing(reasons, len(runs), max(effects, default=None))
