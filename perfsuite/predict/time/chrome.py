"""A predicted step as a Chrome trace, which Perfetto (ui.perfetto.dev) opens.

The format: "Trace Event Format" of the Chromium project, complete events ("X") in microseconds.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from perfsuite.predict.time.schedule import Span
from perfsuite.records import codec

MICRO = 1e6


def write_trace(path: Path, title: str, spans: Sequence[Span]) -> None:
    """Write the spans as one process with a thread per stage. Raises FileError."""
    events: list[dict[str, Any]] = [{"ph": "M", "name": "process_name", "pid": 0, "args": {"name": title}}]
    for stage in sorted({one.stage for one in spans}):
        name = {"name": f"stage {stage}"}
        events.append({"ph": "M", "name": "thread_name", "pid": 0, "tid": stage, "args": name})
        events.append({"ph": "M", "name": "thread_sort_index", "pid": 0, "tid": stage, "args": {"sort_index": stage}})
    for one in spans:
        told = {"micro-batch": one.micro_batch, "chunk": one.chunk} if one.micro_batch >= 0 else {}
        events.append(
            {
                "ph": "X",
                "name": f"{one.name} {one.micro_batch}" if told else one.name,
                "cat": one.name,
                "pid": 0,
                "tid": one.stage,
                "ts": one.begin * MICRO,
                "dur": one.seconds * MICRO,
                "args": told | {f"{part} (µs)": seconds * MICRO for part, seconds in one.parts.items()},
            }
        )
    codec.write_bytes(path, json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}).encode())
