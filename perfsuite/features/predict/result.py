"""The result of a predicted cell in a run, which the report has beside those of measured cells."""

from collections.abc import Mapping

from perfsuite.features.predict.prediction import PredictedTime, Prediction
from perfsuite.records.measurement import STEP_TIME
from perfsuite.records.result import CellResult
from perfsuite.records.sample import Reading

SMALLEST = "predicted_smallest_bytes"


class PredictedResult(CellResult, frozen=True, kw_only=True, tag_field="line", tag="prediction"):
    """A cell that was predicted. ``time`` is judged by nothing: it has an interval, and no baseline."""

    prediction: Prediction
    time: PredictedTime | None = None

    @property
    def cell(self) -> str:
        return self.prediction.cell

    @property
    def kind(self) -> str:
        return "predicted"

    @property
    def outcome(self) -> str:
        return self.prediction.outcome

    @property
    def readings(self) -> Mapping[str, Reading]:
        """Beside those that were counted, the smallest capacity that fits, where there is one."""
        smallest = self.prediction.smallest_bytes
        more = {SMALLEST: Reading(value=smallest)} if smallest else {}
        return {**self.prediction.readings, **more}

    @property
    def versions(self) -> Mapping[str, str]:
        return self.prediction.versions

    def number(self, metric: str) -> float | None:
        """Zero is none: what was not predicted."""
        time = self.time or PredictedTime(cell=self.cell)
        known = {
            "peak_memory_bytes": self.prediction.peak_bytes,
            STEP_TIME: time.predicted_step_seconds,
            "tokens_per_second": time.predicted_tokens_per_second,
            "mfu": time.predicted_mfu,
        }
        return known.get(metric) or None


RESULT = PredictedResult
