"""What a verdict on a prediction says."""

from collections.abc import Sequence

from perfsuite.features.predict.prediction import Prediction
from perfsuite.records.verdict import Line, Status
from perfsuite.system.units import show_bytes, show_part


def not_predicted(now: Prediction, before: Prediction | None = None) -> str:
    """``cannot be predicted: it reads rows. Its baseline says fits.``"""
    return f"cannot be predicted: {now.reason}" + (f" Its baseline says {before.outcome}." if before else "")


def unheld(now: Prediction) -> str:
    """``no predicted baseline; it needs 1.00 GiB.``"""
    return f"no predicted baseline; it needs {show_bytes(now.needed_bytes)}."


def compared(now: Prediction, before: Prediction, lines: Sequence[Line], status: Status) -> str:
    """``fits -> oom, 1.00 MiB missing; 2 of 7 predicted numbers differ``, ``2 of 7 predicted numbers regressed`` or
    ``as predicted``.
    """
    wrong = sum(line.status != Status.OK for line in lines)
    if now.outcome == before.outcome:
        counted = show_part(wrong, len(lines), "predicted number")
        return "as predicted" if status == Status.OK else f"{counted} {status}"
    missing = None
    if now.outcome == "oom" and now.capacity_bytes is not None:
        missing = now.needed_bytes - now.capacity_bytes
    change = f"{before.outcome} -> {now.outcome}" + ("" if missing is None else f", {show_bytes(missing)} missing")
    if lines:
        return f"{change}; {show_part(wrong, len(lines), 'predicted number', 'differs', 'differ')}"
    return f"{change}; it needs {show_bytes(now.needed_bytes)}"
