"""What Perfetto's trace processor finds in the trace of a server on a Unix socket, as JSON.

    python ask_perfetto.py SOCKET

Run by tests/run/test_traces.py in an environment of its own, with the package perfetto.
"""

import json
import sys
from collections import defaultdict

from perfetto.trace_processor import TraceProcessor

PHASES = """
select process.name as rank, slice.name as name from slice join thread_track on slice.track_id = thread_track.id
join thread using (utid) join process using (upid) where slice.category = 'phase' order by slice.ts
"""
PEAKS = """
select process.name as rank, max(counter.value) as peak from counter join process_counter_track as track
on counter.track_id = track.id join process using (upid) where track.name = 'memory (bytes) all' group by 1
"""
processor = TraceProcessor(remote=sys.argv[1])
phases = defaultdict(list)
for row in processor.query(PHASES):
    phases[row.rank].append(row.name)
errors = processor.query("select name from stats where value > 0 and severity in ('error', 'data_loss')")
processes = processor.query("select name from process where name is not null order by pid")
found = {
    "errors": [row.name for row in errors],
    "processes": [row.name for row in processes],
    "phases": phases,
    "peaks": {row.rank: int(row.peak) for row in processor.query(PEAKS)},
    "arrows": next(iter(processor.query("select count(*) as count from flow"))).count,
}
print(json.dumps(found))
