"""A predicted step as a Chrome trace."""

from collections.abc import Sequence
from pathlib import Path

from perfsuite.predict.time.schedule import Span
from perfsuite.records import chrome
from perfsuite.records.chrome import MICRO


def write_trace(path: Path, title: str, spans: Sequence[Span]) -> None:
    """Write the spans as one process with a thread per stage. Raises FileError."""
    events = chrome.name_process(0, title)
    for stage in sorted({one.stage for one in spans}):
        events += chrome.name_thread(0, stage, f"stage {stage}", stage)
    for one in spans:
        place = {"micro-batch": one.micro_batch, "chunk": one.chunk} if one.micro_batch >= 0 else {}
        name = f"{one.name} {one.micro_batch}" if place else one.name
        parts = {f"{part} (µs)": seconds * MICRO for part, seconds in one.parts.items()}
        events.append(chrome.span(0, one.stage, name, one.begin * MICRO, one.seconds * MICRO, place | parts, one.name))
    chrome.write(path, events)
