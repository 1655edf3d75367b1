"""Chrome traces, which Perfetto (ui.perfetto.dev) opens: the events, and the file.

The format is the "Trace Event Format" of the Chromium project, times in microseconds: "X" is a slice of a thread, "C" a
counter of a process, "M" a name. torch's profiler writes the same.
"""

import gzip
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec

from perfsuite.errors import FileError
from perfsuite.records import codec

MICRO = 1e6  # microseconds in a second
GZIP = ".gz"  # of a file's name: Perfetto reads such files too
DECODER = msgspec.json.Decoder(float_hook=Decimal)
NAMES_PROCESS = ("process_name", "process_labels", "process_sort_index")
FIRST_THREAD = 10_000_001  # of a part of a merged trace; no real thread has such a number
MOST_PROCESSES = 10_000  # of a side of a merged trace
ARROWS = 2**32  # more than a part of it has
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
    process: int, thread: int, name: str, begin: float, length: float, details: Mapping[str, Any], kind: str
) -> Event:
    """A slice of a thread; ``details`` are shown if one clicks on it."""
    return {
        "ph": "X",
        "name": name,
        "cat": kind,
        "pid": process,
        "tid": thread,
        "ts": begin,
        "dur": length,
        "args": dict(details),
    }


def counter(process: int, name: str, at: float, values: Mapping[str, int]) -> Event:
    """A counter's new values; one that is not named keeps its value."""
    return {"ph": "C", "name": name, "pid": process, "tid": 0, "ts": at, "args": dict(values)}


def write(path: Path, events: Sequence[Event], **fields: Any) -> None:
    """Write a trace, compressed if the name says so. Raises FileError."""
    content = {**fields, "traceEvents": events, "displayTimeUnit": "ms"}
    text = msgspec.json.Encoder(decimal_format="number").encode(content)
    try:
        codec.write_bytes(path, gzip.compress(text, 6, mtime=0) if path.suffix == GZIP else text)
    except OSError as error:
        raise FileError(f"{path} cannot be written: {error.strerror}.") from error


def read(path: Path) -> dict[str, Any]:
    """A trace that was written here or by torch, its first event at time 0: ``baseTimeNanoseconds`` says when that was.

    torch's times need more digits than a float has, and Perfetto drops a slice that ends after the one around it, even
    by a nanosecond. Raises FileError.
    """
    try:
        data = path.read_bytes()
        trace = DECODER.decode(gzip.decompress(data) if path.suffix == GZIP else data)
    except (OSError, EOFError, ValueError, msgspec.DecodeError) as error:
        raise FileError(f"{path} cannot be read as a Chrome trace: {error}.") from error
    if not isinstance(trace, dict) or not isinstance(trace.get("traceEvents"), list):
        raise FileError(f"{path} is not a Chrome trace.")
    timed = [event for event in trace["traceEvents"] if "ts" in event and event["ph"] != "M"]
    first = min((event["ts"] for event in timed), default=0)
    for event in timed:
        event["ts"] = float(event["ts"] - first)
    return {**trace, "baseTimeNanoseconds": int(trace.get("baseTimeNanoseconds", 0)) + int(first * 1000)}


def merge(sides: Iterable[Sequence[tuple[str, Mapping[str, Any]]]]) -> list[Event]:
    """The events of several traces in one: each is a process with its name. The sides were traced one after another;
    here each begins at time 0, so that they stand beside each other.

    A trace may have several processes, as torch's have one for the host and one for each device. Their threads become
    threads of its one process; torch's own summary of the recording is left out. Perfetto shows the thread with the
    number of its process first, so FIRST_THREAD gets it.
    """
    events: list[Event] = []
    for side, traces in enumerate(sides):
        base = min((trace["baseTimeNanoseconds"] for _, trace in traces), default=0)
        for process, (name, trace) in enumerate(traces, side * MOST_PROCESSES):
            events += name_process(process, name)
            for event in moved(trace, base, process * ARROWS):
                if isinstance(event.get("pid"), int) and event["name"] not in NAMES_PROCESS:
                    thread = process if event.get("tid") == FIRST_THREAD else event.get("tid", 0)
                    events.append({**event, "pid": process, "tid": thread})
    return events


def moved(trace: Mapping[str, Any], base: int, arrows: int) -> Iterator[Event]:
    """The events of a trace that was read, for a trace whose time 0 is ``base``, in nanoseconds since 1970.

    An arrow, from a launch to its kernel or from forward to backward, has an id, to which ``arrows`` is added.
    """
    later = (trace["baseTimeNanoseconds"] - base) / 1e3
    for event in trace["traceEvents"]:
        one = dict(event)
        if one["ph"] == "M":
            one.pop("ts", None)  # of a name; torch's are 0 at times
        elif "ts" in one:
            one["ts"] = round(one["ts"] + later, 3)
        if isinstance(one.get("id"), int):
            one["id"] += arrows
        yield one


def side_by_side(events: Sequence[Event], free: int) -> list[Event]:
    """The events without slices of a thread that overlap by a part, which Perfetto would drop.

    Such a slice is asynchronous, as a message is that ends after the call that sends it. It gets a further thread, with
    a number from ``free`` on.
    """
    stacks: defaultdict[tuple[int, int], list[list[int]]] = defaultdict(list)  # ends of open slices, by lane
    lanes: dict[tuple[int, int, int], int] = {}
    moved_to: dict[int, int] = {}
    slices = [
        (round(event["ts"] * 1000), -round(float(event["dur"]) * 1000), number)
        for number, event in enumerate(events)
        if event["ph"] == "X" and isinstance(event["pid"], int)
    ]
    for begin, length, number in sorted(slices):
        place = events[number]["pid"], events[number]["tid"]
        stack = stacks[place]
        lane = next((at for at, ends in enumerate(stack) if _fits(ends, begin, begin - length)), len(stack))
        if lane == len(stack):
            stack.append([])
        stack[lane].append(begin - length)
        if lane:
            moved_to[number] = lanes.setdefault((*place, lane), free + len(lanes))
    named = [
        one
        for (process, thread, _), lane in lanes.items()
        for one in name_thread(process, lane, f"asynchronous (thread {thread})", thread)
    ]
    return named + [{**one, "tid": moved_to.get(number, one.get("tid"))} for number, one in enumerate(events)]


def _fits(ends: list[int], begin: int, end: int) -> bool:
    """Whether a slice is within all that are open when it begins. Those that have ended are removed."""
    while ends and ends[-1] <= begin:
        ends.pop()
    return not ends or end <= ends[-1]
