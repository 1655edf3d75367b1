"""The predicted time of cells as text. It is never in a table of measured numbers."""

from collections.abc import Sequence

from rich.table import Table

from perfsuite.records.prediction import PredictedTime
from perfsuite.records.result import PredictedResult
from perfsuite.report.tables import bare_table
from perfsuite.units import show_bytes, show_ratio, show_seconds, show_whole

TITLES = ("predicted step (90 %)", "tokens/s", "MFU", "regime")


def entries(time: PredictedTime | None) -> tuple[str, str, str, str]:
    """Step with interval, tokens per second, MFU, and regime; or the word for what has no closed form."""
    if time is None:
        return "", "", "", ""
    if time.untimed:
        return "–", "", "", f"no closed form: {time.untimed}"
    low, high = show_seconds(time.low_seconds), show_seconds(time.high_seconds)
    return (
        f"{show_seconds(time.predicted_step_seconds)} ({low}–{high})",
        show_whole(time.predicted_tokens_per_second),
        show_ratio(time.predicted_mfu),
        time.regime,
    )


def predicted_table(results: Sequence[PredictedResult]) -> Table:
    """One row per predicted cell of a run: whether it fits, what it needs, and its predicted step."""
    table = bare_table("predicted cell", "outcome", "needs", *TITLES)
    for result in results:
        one = result.prediction
        needs = show_bytes(one.needed_bytes) if one.outcome != "unsupported" else ""
        table.add_row(one.cell, one.outcome, needs, *entries(result.time))
    return table
