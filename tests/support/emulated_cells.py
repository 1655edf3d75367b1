"""Run by test_emulation_runs.py on emulated GPUs: measures a cell with each fault named; prints JSON lines."""

import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

from perfsuite.catalog.cell import parse_cell
from perfsuite.catalog.registry import Catalog
from perfsuite.compare.judge import judge
from perfsuite.run.runner import Runner, Settings
from perfsuite.show.text.verdict_words import headline

CELL = "gpt2_tiny-ddp-h100_x2"


def on_rank_1(session, action):
    """In the forward of step 2."""
    from perfsuite.rank.faults import at

    at(session, "forward", 2, action)


def too_much(session, trainer, meters):
    """Rank 1 asks for more than the device has."""
    import torch

    on_rank_1(session, lambda: torch.empty(100 * 2**30, dtype=torch.uint8, device=session.device))


def other_device(session, trainer, meters):
    """Rank 1's model lies on rank 0's device."""
    on_rank_1(session, lambda: trainer.model.to("cuda:0"))


def unknown_call(session, trainer, meters):
    """Rank 1 needs cuFFT, which is not emulated."""
    import torch

    on_rank_1(session, lambda: torch.fft.fft(torch.ones(8, device=session.device)))


def ranks_of(pid):
    """The living children of its children: ranks of its servers."""
    parents = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent, *_ = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if state != "Z":
            parents[int(status.parent.name)] = int(parent)
    servers = {child for child, parent in parents.items() if parent == pid}
    return [child for child, parent in parents.items() if parent in servers]


def main():
    catalog = Catalog()
    settings = Settings(steps=2, warmup=1, step_timeout=20.0, import_path=(str(Path(__file__).parent),))
    runner = Runner(catalog, settings)
    cell = parse_cell(CELL, catalog)
    settings_of = dict(part.split("=", 1) for part in os.environ["PERFSUITE_EMULATED"].split(";"))
    for fault in sys.argv[1:]:
        made = runner.measure(replace(cell, faults=(fault,) if ":" in fault else ()))
        verdict = judge(made, None, catalog.all("metric").values(), strategy="ddp")
        deadline = time.monotonic() + 30
        while ranks_of(os.getpid()) and time.monotonic() < deadline:
            time.sleep(0.1)
        failure = made.failure
        said = {
            "fault": fault,
            "outcome": made.outcome,
            "status": verdict.status,
            "headline": headline(verdict),
            "kind": failure and failure.kind,
            "rank": failure and failure.rank,
            "message": failure and failure.message,
            "readings": {name: reading.value for name, reading in made.readings.items()},
            "left": ranks_of(os.getpid()),
            "shared": settings_of["shared"],
        }
        print(json.dumps(said), flush=True)
    runner.close()


if __name__ == "__main__":
    main()
