"""How a trace of fake tensors ends: as a snapshot for memory_viz, or by a limit of time."""

import pickle

import pytest

from perfsuite.catalog.cell import parse_cell
from perfsuite.catalog.registry import Catalog
from perfsuite.features.predict import traced_memory
from perfsuite.features.predict.trace import tracing
from perfsuite.features.predict.trace_records import HOST, Trace, TraceMark
from perfsuite.system.deadline import OutOfTime, limit


def test_a_trace_of_fake_tensors_becomes_a_snapshot(catalog, monkeypatch):
    """Its labels name the operator and the module; what is in host memory is left out."""
    labels = ["", "aten::mul\th.0"]
    events = [(1, 64, 1, 0), (2, 99, 1, HOST), (-1, 0, 0, 0), (1, -64, 0, 0)]
    marks = [TraceMark(phase="batch", named={1: "parameters"})]
    trace = Trace(events=events, labels=labels, marks=marks, versions={}, seconds=0.0, rss_bytes=0)
    monkeypatch.setattr(traced_memory, "trace_each", lambda jobs, processes: [(0, trace)])
    snapshot = pickle.loads(
        traced_memory.trace_snapshot(parse_cell("gpt2_tiny-single-cpu_x1", catalog), 0, catalog, True)
    )
    (told,) = snapshot["device_traces"]

    assert [(one["action"], one["size"]) for one in told] == [
        ("alloc", 64),
        ("free_requested", 64),
        ("free_completed", 64),
    ]
    assert told[0]["frames"] == [{"filename": "h.0", "line": 0, "name": "aten::mul"}]
    assert told[0]["category"] == "parameters"


def test_a_trace_ends(catalog: Catalog) -> None:
    """A prediction of --perf-predict has a process, too."""
    job = tracing.job_of(parse_cell("t5_large-single+bf16-h100_x1", catalog), 0, catalog)  # it takes many seconds
    with limit(0.5, ""), pytest.raises(OutOfTime):
        tracing.trace([job])
