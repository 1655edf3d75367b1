"""What a judgement costs: 10,000 cells held to their baselines, one line each.

    python benchmarks/judge_speed.py [CELLS]

The measurements are the committed baselines' own, each with another loss, so that no two judgements are of the same
numbers, and every tenth with a larger peak, which must be explained; reading them from their files is timed apart.
"""

import itertools
import sys
import time
from pathlib import Path

import msgspec

from perfsuite.baselines.store import Store
from perfsuite.catalog.cell import parse_cell
from perfsuite.catalog.registry import Catalog
from perfsuite.compare.judge import judge

RED_EVERY = 10
PASSES = 5  # the shortest counts: other processes on the core only add to it
FOLDER = Path(__file__).parents[1] / "baselines"


def main(count: int) -> None:
    """Print seconds of one core per thousand cells of reading and of judging, and how many were ok."""
    catalog, store = Catalog(), Store(FOLDER)
    ids = [path.stem for path in store.all()]
    begin = time.process_time()
    known = [(parse_cell(cell, catalog), store.load(cell)) for cell in ids]
    reading = time.process_time() - begin
    metrics = {cell.id: catalog.metrics(cell.strategy.engine.process) for cell, _ in known}
    work = []
    for number, (cell, baseline) in enumerate(itertools.islice(itertools.cycle(known), count)):
        measured = baseline.measurement
        if "loss" in measured.readings:
            loss = measured.readings["loss"]
            samples = [one and one * (1 + number * 1e-12) for one in loss.samples]
            loss = msgspec.structs.replace(loss, samples=samples, value=samples[-1])
            measured = msgspec.structs.replace(measured, readings=measured.readings | {"loss": loss})
        if number % RED_EVERY == 0 and "peak_memory_bytes" in measured.readings:
            peak = measured.readings["peak_memory_bytes"]
            parts = peak.parts | {"activations": peak.parts.get("activations", 0) + 512}
            peak = msgspec.structs.replace(peak, value=peak.value + 512, parts=parts)
            measured = msgspec.structs.replace(measured, readings=measured.readings | {"peak_memory_bytes": peak})
        work.append((measured, baseline, metrics[cell.id], cell.strategy.name))
    print(f"reading  {reading / len(ids) * 1000:.3f} s per 1,000 baselines")
    passes = []
    for _ in range(PASSES):
        begin = time.process_time()
        verdicts = [judge(measured, baseline, held, strategy=strategy) for measured, baseline, held, strategy in work]
        passes.append(time.process_time() - begin)
    good = sum(verdict.status in ("ok", "unsupported") for verdict in verdicts)
    seconds = ", ".join(f"{one:.3f}" for one in passes)
    print(f"judging  {min(passes):.3f} s for {count:,} cells, {good:,} of them ok; the passes took {seconds} s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
