"""The gate that needs no GPU: predictions are exact integers, so they must be equal.

A prediction's baseline is ``root/predicted/<hardware>/<cell id>.json``, apart from baselines of measurements, which it
never replaces. It names the libraries' versions, so two of them show the effect of an upgrade.
"""

from pathlib import Path

from perfsuite.catalog.cell_id import CellId
from perfsuite.catalog.definitions import OF_A_PEAK, Metric
from perfsuite.compare.rules.exact import compare as exact
from perfsuite.compare.scope import changes
from perfsuite.errors import FileError
from perfsuite.features.predict import outcome_words
from perfsuite.features.predict.prediction import Prediction
from perfsuite.records import codec
from perfsuite.records.reasons import InWords
from perfsuite.records.record import Record
from perfsuite.records.sample import Reading
from perfsuite.records.verdict import GREEN, Consent, Line, Status, Verdict
from perfsuite.system.units import BYTES

HELD = {  # a number, or numbers by name, which are compared one by one and shown as their sum
    "peak_bytes": "live tensors",
    "ranks": "of traced ranks",
    "allocated_bytes": "allocated",
    "reserved_bytes": "reserved",
    "smallest_bytes": "smallest that fits",
    "host_bytes": "on the host",
    "overhead": "outside of tensors",
}
PREDICT = "pytest --perf --perf-predict"  # collects the cells of the default tests


class PredictedBaseline(Record, frozen=True, kw_only=True):
    """A stored prediction with its origin and the reason why it was accepted; a different kind than a measurement's."""

    format: int
    cell: str
    date: str
    commit: str
    reason: str = ""
    prediction: Prediction


def path_of(root: Path, cell_id: str) -> Path:
    """The file of a prediction's baseline."""
    cell = CellId.parse(cell_id)
    return root / "predicted" / cell.hardware / cell.file_name


def load(root: Path, cell_id: str) -> PredictedBaseline | None:
    """The baseline, or None if there is no such file. Raises FileError for one that cannot be used."""
    path = path_of(root, cell_id)
    if not path.exists():
        return None
    baseline = codec.read(path, PredictedBaseline)
    if {baseline.cell, baseline.prediction.cell} != {cell_id}:
        raise FileError(f"{path} is the baseline of {baseline.prediction.cell}, not of {cell_id}.")
    one = baseline.prediction
    for metric in HELD:
        value, parts = _read(metric, one)
        if min([value, *parts.values()]) < 0:
            raise FileError(f"{path} is damaged: its {metric} has a negative number of bytes.")
    if one.parts and sum(one.parts.values()) != one.peak_bytes:
        raise FileError(f"{path} is damaged: its parts are {sum(one.parts.values())} bytes, its peak {one.peak_bytes}.")
    return baseline


def judge_prediction(prediction: Prediction, baseline: PredictedBaseline | None, command: str = PREDICT) -> Verdict:
    """Every number must equal the baseline's; a difference names its part that changed most. Losing a prediction is
    worse, and so is no longer fitting. ``command`` collects the cell's test.
    """
    name, before = prediction.cell, baseline.prediction if baseline else None
    lost = prediction.outcome == "unsupported"
    if lost and (before is None or before.outcome == "unsupported"):
        never = InWords(message=outcome_words.not_predicted(prediction))
        return Verdict(cell=name, status=Status.UNSUPPORTED, reason=never)
    if before is None:
        new = InWords(message=outcome_words.unheld(prediction))
        return Verdict(cell=name, status=Status.MISSING, reason=new, accept=Consent.NEW, collect=command)
    if lost:
        why = InWords(message=outcome_words.not_predicted(prediction, before))
        return Verdict(cell=name, status=Status.REGRESSED, reason=why, accept=Consent.REGRESSED, collect=command)
    # A cell that was never predicted has no numbers: compared with its zeros, all would have grown.
    compared = HELD if before.outcome != "unsupported" else {}
    lines = [_line(metric, title, before, prediction) for metric, title in compared.items()]
    statuses = {line.status for line in lines}
    worst = (Status.REGRESSED, Status.IMPROVED, Status.IMMATERIAL)
    status = next((one for one in worst if one in statuses), Status.OK)
    if before.outcome != prediction.outcome:
        status = Status.REGRESSED if prediction.outcome == "oom" else Status.IMPROVED
    return Verdict(
        cell=name,
        status=status,
        reason=InWords(message=outcome_words.compared(prediction, before, lines, status)),
        lines=lines,
        changed=sorted(changes(before.versions, prediction.versions), key=lambda change: change.name) if lines else [],
        accept=None if status in GREEN else Consent(status.value),
        collect=command,
    )


def _line(name: str, title: str, before: Prediction, now: Prediction) -> Line:
    """The line of one number, by the rule of exact metrics."""
    metric = Metric(name, title, BYTES, worse="higher", materiality=OF_A_PEAK)
    (old, old_parts), (new, new_parts) = _read(name, before), _read(name, now)
    return exact(metric, Reading(value=new, parts=new_parts), Reading(value=old, parts=old_parts))


def _read(metric: str, prediction: Prediction) -> tuple[int, dict[str, int]]:
    value = getattr(prediction, metric)
    if isinstance(value, dict):
        return sum(value.values()), {
            f"rank {name}" if metric == "ranks" else name: size for name, size in value.items()
        }
    return value, prediction.parts if metric == "peak_bytes" else {}
