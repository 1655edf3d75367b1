"""The gate that needs no GPU: predictions are exact integers, so they are held to equality.

A prediction's baseline lies in ``root/predicted/<hardware>/<cell id>.json``, apart from those of measurements, which it
never stands for. It names the libraries' versions: what an upgrade changes is a difference between two of them.
"""

from __future__ import annotations

from pathlib import Path

from perfsuite import records
from perfsuite.errors import FileError
from perfsuite.gate.lines import changes
from perfsuite.records import FORMAT, Line, PredictedBaseline, Prediction, Verdict
from perfsuite.units import show_bytes, show_change

HELD = {
    "peak_bytes": "live tensors",
    "allocated_bytes": "allocated",
    "reserved_bytes": "reserved",
    "smallest_bytes": "smallest that fits",
}
WORSE, BETTER = "regressed", "improved"


def path_of(root: Path, cell_id: str) -> Path:
    """The file of a prediction's baseline."""
    return root / "predicted" / cell_id.split("-")[2] / f"{cell_id}.json"


def load(root: Path, cell_id: str) -> PredictedBaseline | None:
    """The baseline, or None if there is no such file. Raises FileError for one that cannot be used."""
    path = path_of(root, cell_id)
    if not path.exists():
        return None
    baseline = records.read(path, PredictedBaseline)
    if baseline.format != FORMAT:
        raise FileError(f"{path} has format {baseline.format}; this perfsuite knows {FORMAT}.")
    if {baseline.cell, baseline.prediction.cell} != {cell_id}:
        raise FileError(f"{path} is the baseline of {baseline.prediction.cell}, not of {cell_id}.")
    return baseline


def judge_prediction(prediction: Prediction, baseline: PredictedBaseline | None) -> Verdict:
    """Every number must be the baseline's; a difference names the part of the peak that changed most."""
    name = prediction.cell
    if prediction.outcome == "unsupported":
        return Verdict(cell=name, status="unsupported", headline=f"{name} cannot be predicted: {prediction.reason}")
    if baseline is None:
        accept = f"pytest --perf --perf-predict -k {name} --perf-update=new"
        return Verdict(cell=name, status="new", headline=f"{name}: no predicted baseline.", accept=accept)
    before = baseline.prediction
    lines = [_line(metric, title, before, prediction) for metric, title in HELD.items()]
    parts = {
        part: prediction.parts.get(part, 0) - before.parts.get(part, 0) for part in before.parts | prediction.parts
    }
    if (before.outcome, before.rank) != (prediction.outcome, prediction.rank) or any(parts.values()):
        lines[0] = _line("peak_bytes", HELD["peak_bytes"], before, prediction, parts)
    statuses = {line.status for line in lines}
    status = next((one for one in (WORSE, BETTER) if one in statuses), "ok")
    if before.outcome != prediction.outcome:
        status = WORSE if prediction.outcome == "oom" else BETTER
    wrong = sum(line.status != "ok" for line in lines)
    headline = (
        f"{name}: {wrong} of {len(lines)} predicted numbers {status}" if status != "ok" else f"{name}: as predicted"
    )
    accept = f"pytest --perf --perf-predict -k {name} --perf-update={status}" if status != "ok" else ""
    return Verdict(
        cell=name,
        status=status,
        headline=headline,
        lines=lines,
        changed=sorted(changes(before.versions, prediction.versions)),
        accept=accept,
    )


def _line(metric: str, title: str, before: Prediction, now: Prediction, parts: dict[str, int] | None = None) -> Line:
    old, new = getattr(before, metric), getattr(now, metric)
    moved = {part: size for part, size in (parts or {}).items() if size}
    status = "ok" if old == new and not moved else WORSE if new >= old else BETTER
    most = max(moved, key=lambda part: abs(moved[part]), default="")
    sign = "+" if most and moved[most] > 0 else "-"
    return Line(
        metric=metric,
        title=title,
        status=status,
        old=show_bytes(old),
        new=show_bytes(new),
        change=show_change(old, new),
        allowed="0",
        note=f"{most.replace('_', ' ')} {sign}{show_bytes(abs(moved[most]))}" if most else "",
    )
