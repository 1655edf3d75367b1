"""What a stored baseline is still worth, without measuring anything.

Standings, worst first
    refused       it holds no time: of one launch, or its launches spread too wide; or the file cannot be read
    orphaned      nothing can be measured that it is the baseline of
    unknown       its model is none of the catalog's, and tests that may have one of their own were not asked
    incomparable  recorded on another machine or driver: its time is not held here
    stale         recorded with other library versions than are installed here
    sound         none of these
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from perfsuite.catalog.definitions import Metric
from perfsuite.gate.noise import Level, relative, too_wide
from perfsuite.gate.timing import noise_scale, timed_launches
from perfsuite.records import Baseline, Measurement
from perfsuite.units import show_ratio

ORDER = ("refused", "orphaned", "unknown", "incomparable", "stale", "sound")


@dataclass(frozen=True)
class Standing:
    """``reasons`` are (standing, why) for all that apply, the worst first; none for a sound baseline. ``detects`` is
    the largest of the smallest relative slow-downs that its times show, None where they show none.
    """

    reasons: tuple[tuple[str, str], ...]
    detects: float | None = None

    @property
    def status(self) -> str:
        return self.reasons[0][0] if self.reasons else "sound"


def standing(
    baseline: Baseline,
    metrics: Iterable[Metric],
    *,
    tolerance: float,
    orphan: str,
    unknown: str,
    elsewhere: str,
    stale: Sequence[str],
) -> Standing:
    """``orphan``, ``unknown`` and ``elsewhere`` say why it is an orphan, why nobody knows whether it is, and why this
    is not where it was recorded, or nothing; ``stale`` are the versions that are others here.
    """
    detects, refused = _times(baseline.measurement, _timed(metrics), tolerance)
    told = {
        "refused": refused,
        "orphaned": orphan,
        "unknown": unknown,
        "incomparable": elsewhere,
        "stale": ", ".join(stale),
    }
    return Standing(tuple((status, told[status]) for status in ORDER[:-1] if told[status]), detects)


def why_too_wide(measurement: Measurement, metrics: Iterable[Metric], tolerance: float) -> str:
    """Why a baseline of the measurement would be unstable: its launches spread so wide that nothing shows.

    Empty if it would not be, and of one launch, of which nobody knows.
    """
    detects, refused = _times(measurement, _timed(metrics), tolerance)
    return "" if detects is None else refused


def of_one_launch(measurement: Measurement, metrics: Iterable[Metric]) -> bool:
    """Whether it has times, and of one launch alone: a baseline of it holds none of them."""
    return any(len(measurement.by_launch(metric.name)) == 1 for metric in _timed(metrics))


def _timed(metrics: Iterable[Metric]) -> list[Metric]:
    return [metric for metric in metrics if metric.hold == "time"]


def _times(measurement: Measurement, timed: Sequence[Metric], tolerance: float) -> tuple[float | None, str]:
    """The smallest effect that the least of the timed metrics shows, and why they hold nothing, or nothing."""
    detects = None
    for metric in timed:
        if metric.name not in measurement.readings:
            continue
        launches = timed_launches(measurement, metric)
        if not launches or not all(launch and min(launch) > 0 for launch in launches):
            return None, f"{metric.name} has no timed steps"
        if len(launches) < 2:
            return None, "of one launch, which says nothing of the noise: its time is not held"
        level = Level.of(noise_scale(measurement, launches))
        effect = level.smallest_effect(tolerance)
        detects = max(effect, detects or 0.0)
        if too_wide(effect, tolerance):
            return (
                detects,
                f"its launches spread by {show_ratio(relative(level.spread))}: a step twice as slow would not show",
            )
    return detects, ""
