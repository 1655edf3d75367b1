"""What the suite of cells measures at a rung: numbers by cell for its series, and the evidence for them."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from perfsuite.catalog.cell import parse_cell
from perfsuite.catalog.registry import Catalog
from perfsuite.errors import Refused
from perfsuite.features.ladder.rung_evidence import Evidence, add, behind
from perfsuite.features.predict.prediction import Prediction
from perfsuite.features.predict.trace.tracing import MemoryTracer
from perfsuite.features.predict.traced_memory import attempt_each
from perfsuite.features.predict.untraceable import why_not_traced
from perfsuite.rank.memory.anatomy import CATEGORIES
from perfsuite.records.failure import Failure
from perfsuite.records.measurement import STEP_TIME, Measurement
from perfsuite.run.runner import Runner, Settings
from perfsuite.system.machine import cores

PEAK = "peak_memory_bytes"
COUNTED = {  # series → metric
    "peak_memory": PEAK,
    "communication": "communication_bytes",
    **{name: name for name in ("collectives", "operators", "model_flop", "hardware_flop")},
}


def traced(ids: Sequence[str], folder: str, commit: str, suite: str) -> dict[str, dict[str, Any]]:
    """Every cell's series, without a GPU and without noise. Raises Refused for a cell that cannot be traced.

    A cell that a release cannot train has one failure and no other number; the other cells are not affected. Evidence
    goes into ``folder``, if there is one.
    """
    catalog = Catalog()
    cells = [parse_cell(one, catalog) for one in ids]
    for cell in cells:
        if reason := why_not_traced(cell):
            raise Refused(f"{cell.id}: {reason}")
    with MemoryTracer(cores()) as tracer:
        outcomes = dict(attempt_each(cells, catalog, tracer, counted=True, fresh=True))
    found = {one: _refusal(outcomes[number]) or outcomes[number] for number, one in enumerate(ids)}
    if folder:
        add(Path(folder), commit, _evidence(found, suite))
    return {one: _series(outcome) for one, outcome in found.items()}


def _refusal(outcome: Prediction | Failure) -> Failure | None:
    """A release that cannot run a cell raises it in training: that is a failure like any other."""
    if isinstance(outcome, Prediction) and outcome.outcome == "unsupported":
        return Failure(kind="unsupported", rank=None, message=outcome.reason)
    return None


def _series(outcome: Prediction | Failure) -> dict[str, Any]:
    if isinstance(outcome, Failure):
        return {"failures": 1}
    counted = {series: metric for series, metric in COUNTED.items() if metric in outcome.readings}
    numbers = {series: outcome.readings[metric].value for series, metric in counted.items()}
    memory = {category: outcome.parts.get(category, 0) for category in CATEGORIES}
    return {"failures": int(outcome.outcome != "fits"), "memory": memory, **numbers}


def _evidence(found: Mapping[str, Prediction | Failure], suite: str) -> Evidence:
    evidence: Evidence = {}

    def note(series: str, params: str, value: Any) -> None:
        evidence.setdefault(f"{suite}.track_{series}", {})[params] = value

    for one, outcome in found.items():
        if isinstance(outcome, Failure):
            note("failures", repr(one), " ".join([outcome.message, *outcome.tail.strip().splitlines()[-1:]]))
            continue
        if outcome.outcome != "fits":
            note("failures", repr(one), f"it needs {outcome.smallest_bytes:,} bytes and does not fit")
        for series, metric in COUNTED.items():
            if metric in outcome.readings:
                note(series, repr(one), behind(metric, outcome.readings[metric]))
        for category in CATEGORIES:
            note("memory", f"{one!r}, {category!r}", behind(PEAK, outcome.readings[PEAK], category))
    return evidence


def measured(ids: Sequence[str], folder: str, commit: str, suite: str) -> dict[str, dict[str, Any]]:
    """Every cell's times from a launch of its ranks, here. A failing cell has one failure and no time."""
    catalog = Catalog()
    with closing(Runner(catalog, Settings())) as runner:
        found = {one: runner.measure(parse_cell(one, catalog)) for one in ids}
    if folder:
        failures = {repr(one): run.failure.message for one, run in found.items() if run.failure}
        add(Path(folder), commit, {f"{suite}.track_failures": failures})
    return {one: _times(run) for one, run in found.items()}


def _times(run: Measurement) -> dict[str, Any]:
    if run.failure:
        return {"failures": 1}
    return {"failures": 0, "step_time": run.readings[STEP_TIME].value}
