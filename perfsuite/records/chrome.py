"""Chrome traces, which Perfetto (ui.perfetto.dev) opens: the events, and the file.

The format is the "Trace Event Format" of the Chromium project, times in microseconds: "X" is a slice of a thread, "C" a
counter of a process, "M" a name. torch's profiler writes the same.
"""

import gzip
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from perfsuite.errors import FileError
from perfsuite.records import codec

MICRO = 1e6  # microseconds in a second
GZIP = ".gz"  # of a file's name: Perfetto reads such files too
Event = dict[str, Any]


def name_process(process: int, name: str) -> list[Event]:
    """The process is shown under this name; processes are shown in the order of their numbers."""
    return [
        {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": name}},
        {"ph": "M", "name": "process_sort_index", "pid": process, "tid": 0, "args": {"sort_index": process}},
    ]


def name_thread(process: int, thread: int, name: str, order: int) -> list[Event]:
    """The thread is shown under this name, those of a process by ``order``."""
    return [
        {"ph": "M", "name": "thread_name", "pid": process, "tid": thread, "args": {"name": name}},
        {"ph": "M", "name": "thread_sort_index", "pid": process, "tid": thread, "args": {"sort_index": order}},
    ]


def span(
    process: int, thread: int, name: str, begin: float, length: float, told: Mapping[str, Any], kind: str
) -> Event:
    """A slice of a thread; ``told`` is shown if one clicks on it."""
    return {
        "ph": "X",
        "name": name,
        "cat": kind,
        "pid": process,
        "tid": thread,
        "ts": begin,
        "dur": length,
        "args": dict(told),
    }


def counter(process: int, name: str, at: float, values: Mapping[str, int]) -> Event:
    """A counter's new values; one that is not named keeps its value."""
    return {"ph": "C", "name": name, "pid": process, "tid": 0, "ts": at, "args": dict(values)}


def write(path: Path, events: Sequence[Event], **fields: Any) -> None:
    """Write a trace, compressed if the name says so. Raises FileError."""
    text = msgspec.json.encode({**fields, "traceEvents": events, "displayTimeUnit": "ms"})
    try:
        codec.write_bytes(path, gzip.compress(text, 6, mtime=0) if path.suffix == GZIP else text)
    except OSError as error:
        raise FileError(f"{path} cannot be written: {error.strerror}.") from error


def read(path: Path) -> dict[str, Any]:
    """A trace that was written here or by torch. Raises FileError."""
    try:
        data = path.read_bytes()
        found = msgspec.json.decode(gzip.decompress(data) if path.suffix == GZIP else data)
    except (OSError, EOFError, ValueError, msgspec.DecodeError) as error:
        raise FileError(f"{path} cannot be read as a Chrome trace: {error}.") from error
    if not isinstance(found, dict) or not isinstance(found.get("traceEvents"), list):
        raise FileError(f"{path} is not a Chrome trace.")
    return found


def merge(parts: Iterable[tuple[str, Mapping[str, Any]]]) -> list[Event]:
    """The events of several traces in one: each part is a process with its name, and the first event is at time 0.

    A part may have several processes, as torch's have one for the host and one for each device. Their threads become
    threads of the part's one process; torch's own summary of the recording is left out.
    """
    events: list[Event] = []
    for process, (name, part) in enumerate(parts):
        events += name_process(process, name)
        base = float(part.get("baseTimeNanoseconds", 0)) / 1e3
        for event in part["traceEvents"]:
            described = event.get("ph") == "M" and event.get("name") != "thread_name"
            if (described and event.get("name") != "thread_sort_index") or not isinstance(event.get("pid"), int):
                continue
            one = {**event, "pid": process}
            if "ts" in one:
                one["ts"] = float(one["ts"]) + base
            if "id" in one:  # arrows from a launch to its kernel, and from forward to backward
                one["id"] = f"{process}/{one['id']}"
            events.append(one)
    first = min((event["ts"] for event in events if "ts" in event), default=0.0)
    for event in events:
        if "ts" in event:
            event["ts"] = round(event["ts"] - first, 3)
    return events
