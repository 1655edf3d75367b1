"""The cost of a prediction, and a check that it is the same in every process.

    python benchmarks/memory_speed.py          # writes docs/data/memory/speed.csv; exit code 1 if a goal is missed

Seconds are CPU seconds on one core: a shared machine's wall clock says little. A prediction traces the first rank, and
the last if something is sharded; the goal is for the trace of a rank, without the imports, which all ranks share. The
table also has the cost of the whole prediction, with imports. Every trace must need less than MOST_RSS. torch's
own MemTracker (torch.distributed._tools.mem_tracker) follows two steps of the same model under fake tensors; it is
stopped after TRACKER_LIMIT.
"""

import hashlib
import os
import resource
import signal
import subprocess
import sys

from result_tables import DATA, write_table

from perfsuite.catalog.cell import parse_cell
from perfsuite.catalog.registry import Catalog
from perfsuite.features.predict.trace.tracing import job_of, trace
from perfsuite.features.predict.trace_records import Trace
from perfsuite.features.predict.traced_ranks import ranks_of

FOLDER = DATA
COLUMNS = (
    "cell",
    "trace",
    "goal",
    "whole prediction, of ranks",
    "RSS",
    "events",
    "torch's MemTracker: time, RSS, peak",
)
GOALS = {  # CPU seconds of the trace of a rank
    "t5_large-single+bf16-rtx3090_x1-b8": 12,
    "t5_11b-single+bf16-a100_80g_x1": 12,
    "bloom_7b1-single+bf16-a100_80g_x1": 6,
    "gpt3_175b-zero3+bf16+ckpt-a100_80g_x8n32": 60,
}
MOST_RSS = 2**30
TRACKER_LIMIT = 60  # CPU seconds
SEEDS = range(5)
SEEDED = "llama_tiny-fsdp2+bf16-h100_x8"
TRACKER = """
import resource, sys, time
import torch, transformers
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from perfsuite.catalog.registry import Catalog
from perfsuite.catalog.cell import parse_cell
from perfsuite.rank.build_model import from_transformers
cell = parse_cell(sys.argv[1], Catalog())
begin, work = time.process_time(), cell.workload
with FakeTensorMode():
    model = from_transformers(cell.model)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    tracker = MemTracker()
    tracker.track_external(model, optimizer)
    with tracker:
        for _ in range(2):
            ids = torch.zeros(work.micro_batch, work.sequence_length, dtype=torch.int64)
            labels = torch.zeros(work.micro_batch, work.target_length or work.sequence_length, dtype=torch.int64)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = model(input_ids=ids, labels=labels).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            tracker.reset_mod_stats()
    peak = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]
print(time.process_time() - begin, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, peak)
"""


def children_seconds() -> float:
    """CPU seconds of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    """Trace, time, compare; the table is rewritten after every result. 1 if a goal is missed."""
    catalog = Catalog()
    rows: dict[str, tuple[str, ...]] = {}
    trackers: dict[str, str] = {}
    missed = False
    for name, goal in GOALS.items():
        before, cell = children_seconds(), parse_cell(name, catalog)
        ranks = ranks_of(cell)
        results = trace([job_of(cell, rank, catalog) for rank in ranks])
        whole = children_seconds() - before
        traces = [result for result in results if isinstance(result, Trace)]
        assert len(traces) == len(ranks), results
        slowest = max(one.seconds for one in traces)
        rss = max(one.rss_bytes for one in traces)
        missed |= slowest > goal or rss >= MOST_RSS
        rows[name] = (
            f"{slowest:.1f} s",
            f"{goal} s: {'met' if slowest <= goal else 'MISSED'}",
            f"{whole:.1f} s of {len(ranks)}",
            f"{rss / 2**20:.0f} MiB: {'met' if rss < MOST_RSS else 'MISSED'}",
            f"{max(len(one.events) for one in traces):,}",
        )
        write(rows, trackers)
    same = len({_seeded(seed, catalog) for seed in SEEDS}) == 1
    outcome = "the same" if same else "OTHER"
    sentence = f"{SEEDED}: {len(SEEDS)} processes with different hash seeds trace {outcome} events, to the byte."
    print(sentence, flush=True)
    for name in rows:
        if parse_cell(name, catalog).hardware.world_size == 1:  # MemTracker knows one rank
            trackers[name] = _tracker(name)
            write(rows, trackers)
    return int(missed or not same)


def write(rows: dict[str, tuple[str, ...]], trackers: dict[str, str]) -> None:
    """Write the results so far."""
    lines = [(name, *cells, trackers.get(name, "–")) for name, cells in rows.items()]
    print(*lines[-1], flush=True)
    write_table("memory/speed", COLUMNS, lines, FOLDER)


def _tracker(name: str) -> str:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", TRACKER, name]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, preexec_fn=_limit)
    if done.returncode == -signal.SIGXCPU:
        return f"more than {TRACKER_LIMIT} s"
    if done.returncode:
        return f"fails: {done.stderr.strip().splitlines()[-1][:80]}"
    seconds, rss, peak = (float(word) for word in done.stdout.split()[-3:])
    return f"{seconds:.1f} s, {rss / 2**20:.0f} MiB, {peak / 2**30:.2f} GiB"


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (TRACKER_LIMIT, TRACKER_LIMIT + 5))


def _seeded(seed: int, catalog: Catalog) -> str:
    os.environ["PYTHONHASHSEED"] = str(seed)
    (result,) = trace([job_of(parse_cell(SEEDED, catalog), 0, catalog)])
    assert isinstance(result, Trace), result
    return hashlib.sha256(repr((result.events, result.labels, result.marks)).encode()).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
