"""Records real launches, without and with real delays, from which docs/detection.md is computed.

    python benchmarks/record_launches.py [ROUNDS]

A round is, for each cell, two launches as they are and one with each delay, in an order drawn by lot, from a rank
server of their own: what a server's memory is like is part of the noise. Rounds are appended, so that recordings of
several hours and machines' moods can follow one another. Each line of benchmarks/data/launches.jsonl is one launch.
"""

import random
import sys
from pathlib import Path

from perfsuite import records
from perfsuite.catalog.registry import Catalog
from perfsuite.cell import parse_cell
from perfsuite.records import Record
from perfsuite.runner import Runner, Settings

FILE = Path(__file__).parent / "data" / "launches.jsonl"
CELLS = ("gpt2_tiny-single-cpu_x1", "bloom_tiny-ddp-cpu_x2", "t5_tiny-zero3+bf16-cpu_x2")
DELAYS = (5, 10, 20)  # percent


class Recorded(Record, frozen=True, kw_only=True):
    """One launch: its steps and control rounds in seconds, the share of each step that was added, the load."""

    cell: str
    round: str
    date: str
    delay: float
    step_seconds: list[float]
    control_seconds: list[float]
    load: float


def main(rounds: int) -> None:
    """Append the rounds, launch by launch."""
    FILE.parent.mkdir(exist_ok=True)
    catalog = Catalog()
    cells = [parse_cell(text, catalog) for text in CELLS]
    plan = [(), (), *((f"perfsuite.selftest.delays:slow_{percent}",) for percent in DELAYS)]
    for number in range(rounds):
        runner, round_id = Runner(catalog, Settings()), records.timestamp()
        for cell in cells:
            random.shuffle(plan)
            for faults in plan:
                one = runner.measure(cell, faults=faults)
                if one.outcome != "fits":
                    raise SystemExit(f"{cell.id}: {one.failure}")
                launch = one.launches[0]
                line = Recorded(
                    cell=cell.id,
                    round=round_id,
                    date=launch.date,
                    delay=int(faults[0].rpartition("_")[2]) / 100 if faults else 0.0,
                    step_seconds=[round(seconds, 7) for seconds in one.by_launch("step_time_seconds")[0]],
                    control_seconds=[round(seconds, 7) for seconds in one.by_launch("control_seconds")[0]],
                    load=float(launch.conditions["load_1min"]),
                )
                with FILE.open("a") as file:
                    file.write(records.encode_line(line) + "\n")
        runner.close()
        print(f"round {number + 1} of {rounds}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
