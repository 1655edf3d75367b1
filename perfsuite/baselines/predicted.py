"""The gate that needs no GPU: predictions are exact integers, so they must be equal.

A prediction's baseline is ``root/predicted/<hardware>/<cell id>.json``, apart from baselines of measurements, which it
never replaces. It names the libraries' versions, so two of them show the effect of an upgrade.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from perfsuite.catalog.definitions import OF_A_PEAK, Metric
from perfsuite.compare.judge import GREEN
from perfsuite.compare.rules.exact import hold as exact
from perfsuite.compare.scope import changes
from perfsuite.errors import FileError
from perfsuite.records import codec
from perfsuite.records.baseline import PredictedBaseline
from perfsuite.records.formats import FORMATS
from perfsuite.records.prediction import Prediction
from perfsuite.records.sample import Reading
from perfsuite.records.verdict import Line, Status, Verdict
from perfsuite.units import show_bytes

HELD = {  # a number, or numbers by name, which are compared one by one and shown as their sum
    "peak_bytes": "live tensors",
    "ranks": "of traced ranks",
    "allocated_bytes": "allocated",
    "reserved_bytes": "reserved",
    "smallest_bytes": "smallest that fits",
    "host_bytes": "on the host",
    "overhead": "outside of tensors",
}
WORSE: Final = "regressed"
BETTER: Final = "improved"


def path_of(root: Path, cell_id: str) -> Path:
    """The file of a prediction's baseline."""
    return root / "predicted" / cell_id.split("-")[2] / f"{cell_id}.json"


def load(root: Path, cell_id: str) -> PredictedBaseline | None:
    """The baseline, or None if there is no such file. Raises FileError for one that cannot be used."""
    path = path_of(root, cell_id)
    if not path.exists():
        return None
    baseline = codec.read(path, PredictedBaseline)
    if baseline.format not in FORMATS:
        raise FileError(f"{path} has format {baseline.format}; this perfsuite knows {', '.join(map(str, FORMATS))}.")
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


def judge_prediction(
    prediction: Prediction, baseline: PredictedBaseline | None, command: str = "pytest --perf --perf-predict"
) -> Verdict:
    """Every number must equal the baseline's; a difference names its part that changed most. Losing a prediction is
    worse, and so is no longer fitting. ``command`` collects the cell's test.
    """
    name, before = prediction.cell, baseline.prediction if baseline else None
    cannot = f"{name} cannot be predicted: {prediction.reason}" if prediction.outcome == "unsupported" else ""
    if cannot and (before is None or before.outcome == "unsupported"):
        return Verdict(cell=name, status="unsupported", headline=cannot)
    accept = f"{command} -k {name} --perf-update="
    if before is None:
        text = f"{name}: no predicted baseline; {_needs(prediction)}."
        return Verdict(cell=name, status="missing", headline=text, accept=f"{accept}new")
    if cannot:
        text = f"{cannot} Its baseline says {before.outcome}."
        return Verdict(cell=name, status=WORSE, headline=text, accept=accept + WORSE)
    # A cell that was never predicted has no numbers: compared with its zeros, all would have grown.
    compared = HELD if before.outcome != "unsupported" else {}
    lines = [_line(metric, title, before, prediction) for metric, title in compared.items()]
    statuses = {line.status for line in lines}
    status: Status = next((one for one in (WORSE, BETTER, "immaterial") if one in statuses), "ok")
    wrong = sum(line.status != "ok" for line in lines)
    headline = f"{wrong} of {len(lines)} predicted numbers {status}" if status != "ok" else "as predicted"
    if before.outcome != prediction.outcome:
        status = WORSE if prediction.outcome == "oom" else BETTER
        numbers = f"{wrong} of {len(lines)} predicted numbers differ" if lines else _needs(prediction)
        headline = f"{before.outcome} -> {prediction.outcome}{_missing(prediction)}; {numbers}"
    return Verdict(
        cell=name,
        status=status,
        headline=f"{name}: {headline}",
        lines=lines,
        changed=sorted(changes(before.versions, prediction.versions)) if lines else [],
        accept=f"{accept}{status}" if status not in GREEN else "",
    )


def _needs(prediction: Prediction) -> str:
    return f"it needs {show_bytes(prediction.needed_bytes)}"


def _missing(prediction: Prediction) -> str:
    """``, 1.06 GiB missing`` out of memory; else nothing."""
    if prediction.outcome != "oom" or prediction.capacity_bytes is None:
        return ""
    return f", {show_bytes(prediction.needed_bytes - prediction.capacity_bytes)} missing"


def _line(name: str, title: str, before: Prediction, now: Prediction) -> Line:
    """The line of one number, by the rule of exact metrics."""
    metric = Metric(name=name, title=title, show=show_bytes, worse="higher", materiality=OF_A_PEAK)
    (old, old_parts), (new, new_parts) = _read(name, before), _read(name, now)
    return exact(metric, Reading(value=new, parts=new_parts), Reading(value=old, parts=old_parts))


def _read(metric: str, prediction: Prediction) -> tuple[int, dict[str, int]]:
    value = getattr(prediction, metric)
    if isinstance(value, dict):
        return sum(value.values()), {
            f"rank {name}" if metric == "ranks" else name: size for name, size in value.items()
        }
    return value, prediction.parts if metric == "peak_bytes" else {}
