"""What a stored baseline is still worth, without measuring anything.

Standings, worst first
    refused       the file cannot be read
    orphaned      nothing can be measured that it is the baseline of
    unknown       its model is none of the catalog's, and tests that may have one of their own were not asked
    incomparable  it has no times of this machine or driver
    stale         recorded with other library versions than are installed here
    sound         none of these
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from perfsuite.catalog.definitions import Metric
from perfsuite.gate.pool import runs_of
from perfsuite.gate.terms import Terms
from perfsuite.gate.timing import pool_of, smallest_effect
from perfsuite.records.baseline import Baseline

ORDER = ("refused", "orphaned", "unknown", "incomparable", "stale", "sound")


@dataclass(frozen=True)
class Standing:
    """``reasons`` are (standing, why) for all that apply, the worst first; none for a sound baseline. ``runs`` are
    those whose times it keeps, ``detects`` the largest of the smallest relative slow-downs that they show without a
    trial, None where they show none.
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
    *,
    terms: Terms,
    orphan: str,
    unknown: str,
    elsewhere: str,
    stale: Sequence[str],
) -> Standing:
    """``orphan``, ``unknown`` and ``elsewhere`` say why it is an orphan, why nobody knows whether it is, and why this
    is not where it was recorded, or nothing; ``stale`` are the versions that are others here.
    """
    told = {"orphaned": orphan, "unknown": unknown, "incomparable": elsewhere, "stale": ", ".join(stale)}
    reasons = tuple((status, told[status]) for status in ORDER if told.get(status))
    metrics = list(metrics)
    runs = runs_of(baseline, metrics)
    effects = []
    for metric in metrics:
        values = [run.values[metric.name] for run in runs if metric.hold == "time" and metric.name in run.values]
        if values and min(values) > 0:
            effects.append(smallest_effect(metric, pool_of(values, metric.sign, terms), terms))
    return Standing(reasons, len(runs), max(effects, default=None))
