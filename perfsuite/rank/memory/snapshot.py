"""A memory snapshot in torch's own format, for docs.pytorch.org/memory_viz and torch/cuda/_memory_viz.py, of memory
that torch makes none of: a CPU's, or that of a trace under fake tensors.

It is a dict as torch.cuda.memory._snapshot() returns it, with one segment. Addresses are not the real ones: a block
takes that of a released block of the same size, or the next one, so that the segment has no holes.
"""

import pickle
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from perfsuite.rank.memory.anatomy import Mark, changes
from perfsuite.rank.session import Session
from perfsuite.records.codec import write_bytes
from perfsuite.records.job import SNAPSHOT
from perfsuite.records.suspects import AT

FIRST_ADDRESS = 2**21
ALIGNMENT = 64  # bytes
PROTOCOL = 4  # of pickle: memory_viz knows no newer one (MemoryViz.js, unpickle)
UNKNOWN = "unknown"  # memory_viz draws no categories unless an event has this one (MemoryViz.js, annotate_snapshot)


def keep_snapshot(session: Session) -> None:
    """Write that of a rank in a launch that is traced, if its memory is recorded."""
    memory = session.memory
    if memory is None:
        return
    snapshot = memory.source.snapshot() or make_snapshot(memory.events, memory.marks, memory.times)
    path = SNAPSHOT.format(prefix=session.job.traces, rank=session.rank)
    write_bytes(Path(path), pickled(snapshot))


def pickled(snapshot: dict[str, Any]) -> bytes:
    """The file's content."""
    return pickle.dumps(snapshot, PROTOCOL)


def make_snapshot(
    events: Iterable[tuple[int, int, str]], marks: Mapping[int, Mark], times: Sequence[int] | None = None
) -> dict[str, Any]:
    """The snapshot of a log as anatomy.py describes it. ``times`` are those of its events in nanoseconds; without
    them, an event's number takes the place of its microseconds.
    """
    trace: list[dict[str, Any]] = []
    free: defaultdict[int, list[int]] = defaultdict(list)
    blocks: dict[int, dict[str, Any]] = {}  # every place of the segment, with its last block
    live: dict[int, int] = {}  # a block's place
    end = FIRST_ADDRESS
    for change in changes(events, marks):
        at, size = times[change.index] // 1000 if times else change.index, abs(change.size)
        width = -(-size // ALIGNMENT) * ALIGNMENT
        if change.size > 0:
            place = free[width].pop() if free[width] else end
            end = max(end, place + width)
            live[id(change.block)] = place
            frames = _frames(change.block.operation)
            state = {"address": place, "size": width, "requested_size": size, "state": "active_allocated"}
            blocks[place] = state | {"frames": frames}
            actions = {"alloc": change.block.kind()}
        else:
            place = live.pop(id(change.block))
            free[width].append(place)
            frames = blocks[place]["frames"]
            blocks[place] |= {"state": "inactive", "frames": []}
            actions = {"free_requested": UNKNOWN, "free_completed": UNKNOWN}
        block = {"addr": place, "size": size, "stream": 0, "time_us": at, "frames": frames}
        trace += [{"action": action, **block, "category": category} for action, category in actions.items()]
    active = sum(block["size"] for block in blocks.values() if block["state"] == "active_allocated")
    segment = {
        "device": 0,
        "address": FIRST_ADDRESS,
        "total_size": end - FIRST_ADDRESS,
        "allocated_size": active,
        "active_size": active,
        "requested_size": sum(block["requested_size"] for block in blocks.values() if block["frames"]),
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": [blocks[place] for place in sorted(blocks)],
    }
    return {"segments": [segment] if blocks else [], "device_traces": [trace]}


def _frames(operation: str) -> list[dict[str, Any]]:
    """A stack of one call: the operator, in its module."""
    operator, _, module = operation.partition(AT)
    return [{"filename": module, "line": 0, "name": operator or "python"}]
