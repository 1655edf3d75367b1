"""What a judgement costs: 10,000 cells held to their baselines, one line each.

    python benchmarks/judge_speed.py [CELLS]

The measurements are the committed baselines' own, each with another loss, so that no two judgements are of the same
numbers, and every tenth with a larger peak, which must be explained; reading them from their files is timed apart.
"""

import contextlib
import itertools
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from perfsuite.baselines.store import Store
from perfsuite.catalog.cell import Cell, parse_cell
from perfsuite.catalog.definitions import Metric
from perfsuite.catalog.registry import Catalog
from perfsuite.compare.judge import judge
from perfsuite.errors import UnknownName
from perfsuite.records.baseline import Baseline
from perfsuite.records.measurement import Measurement
from perfsuite.records.verdict import Verdict

RED_EVERY = 10
PASSES = 5  # the shortest counts: other processes on the core only add to it
FOLDER = Path(__file__).parents[1] / "baselines"


@dataclass(frozen=True)
class Judgement:
    """A measurement and the baseline that it is held to."""

    measured: Measurement
    baseline: Baseline
    metrics: Sequence[Metric]
    strategy: str

    def verdict(self) -> Verdict:
        return judge(self.measured, self.baseline, self.metrics, strategy=self.strategy)


def known_baselines() -> list[tuple[Cell, Baseline]]:
    """The committed ones of the catalog's models, with their cells."""
    catalog, store = Catalog(), Store(FOLDER)
    found = []
    for path in store.all():
        with contextlib.suppress(UnknownName):  # a script is known to the tests of its repository alone
            cell, baseline = parse_cell(path.stem, catalog), store.load(path.stem)
            assert baseline
            found.append((cell, baseline))
    return found


def judgements(known: Sequence[tuple[Cell, Baseline]], count: int) -> Iterator[Judgement]:
    """So many, of the baselines in turns."""
    catalog = Catalog()
    metrics = {cell.id: catalog.metrics(cell.strategy.engine.process) for cell, _ in known}
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
        yield Judgement(measured, baseline, metrics[cell.id], cell.strategy.name)


def main(count: int) -> None:
    """Print seconds of one core per thousand cells of reading and of judging, and how many were ok."""
    begin = time.process_time()
    known = known_baselines()
    reading = time.process_time() - begin
    work = list(judgements(known, count))
    print(f"reading  {reading / len(known) * 1000:.3f} s per 1,000 baselines")
    passes = []
    for _ in range(PASSES):
        begin = time.process_time()
        verdicts = [judgement.verdict() for judgement in work]
        passes.append(time.process_time() - begin)
    good = sum(verdict.status in ("ok", "unsupported") for verdict in verdicts)
    seconds = ", ".join(f"{one:.3f}" for one in passes)
    print(f"judging  {min(passes):.3f} s for {count:,} cells, {good:,} of them ok; the passes took {seconds} s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
