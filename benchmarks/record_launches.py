"""Records real launches, without and with real delays, from which docs/detection.md is computed.

    python benchmarks/record_launches.py NAME [ROUNDS [alone | turns]]

A round is, for each cell, launches alone, two as they are and one with each delay, in an order drawn by lot and from a
rank server of their own: what a server's memory is like is part of the noise. Or it is, as ``perfsuite ab`` has them,
pairs of launches in turns, of which B has the delay or none. Without a third word each round of one kind is followed by
one of the other. Rounds are appended, so that recordings of several hours can follow one another. The name says what
the machine is like, "quiet" or "busy"; each line of benchmarks/data/NAME.jsonl is one launch.
"""

import random
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from perfsuite import codec, records
from perfsuite.catalog.registry import Catalog
from perfsuite.cell import Cell, parse_cell
from perfsuite.duet import SIDES, measure_in_turns
from perfsuite.records import Measurement, Record
from perfsuite.runner import Runner, Settings

DATA = Path(__file__).parent / "data"
CELLS = ("gpt2_tiny-single-cpu_x1", "bloom_tiny-ddp-cpu_x2")
DELAYS_ALONE = (10, 20, 50)  # percent
DELAYS_IN_TURNS = (0, 5, 10)
STEPS_IN_TURNS = 200


class Recorded(Record, frozen=True, kw_only=True):
    """One launch: its steps, the pace beside each and its control's rounds in seconds, the share of each step that was
    added, the load.

    ``beside`` is that share of the pair's other side, -1 for a launch alone. A pair needs no pace.
    """

    cell: str
    round: str
    date: str
    delay: float
    beside: float = -1.0
    side: str = ""
    step_seconds: list[float]
    control_seconds: list[float]
    pace_seconds: list[float] = msgspec.field(default_factory=list)
    load: float


def main(name: str, rounds: int, kinds: Sequence[str]) -> None:
    """Append the rounds, launch by launch."""
    DATA.mkdir(exist_ok=True)
    catalog = Catalog()
    cells = [parse_cell(text, catalog) for text in CELLS]
    for number in range(rounds):
        for kind in kinds:
            KINDS[kind](name, records.timestamp(), catalog, cells)
        print(f"round {number + 1} of {rounds}", flush=True)


def alone(name: str, round_id: str, catalog: Catalog, cells: Sequence[Cell]) -> None:
    """Launches one after another."""
    runner = Runner(catalog, Settings())
    delays = [0, 0, *DELAYS_ALONE]
    for cell in cells:
        random.shuffle(delays)
        for percent in delays:
            keep(name, round_id, runner.measure(cell, faults=faults(percent)), percent / 100)
    runner.close()


def turns(name: str, round_id: str, catalog: Catalog, cells: Sequence[Cell]) -> None:
    """Pairs whose steps alternate."""
    for cell in cells:
        for percent in random.sample(DELAYS_IN_TURNS, len(DELAYS_IN_TURNS)):
            runners = [Runner(catalog, Settings(steps=STEPS_IN_TURNS)) for _ in SIDES]
            given = ((), faults(percent))
            both = measure_in_turns(runners, (cell, cell), random.choice(SIDES), lambda *_: None, given)
            keep(name, round_id, both[0], 0.0, percent / 100, "a")
            keep(name, round_id, both[1], percent / 100, 0.0, "b")
            for one in runners:
                one.close()


KINDS = {"alone": alone, "turns": turns}


def faults(percent: int) -> tuple[str, ...]:
    """The delay as the rank is told of it."""
    return (f"perfsuite.selftest.delays:slow_{percent}",) if percent else ()


def keep(name: str, round_id: str, one: Measurement, delay: float, beside: float = -1.0, side: str = "") -> None:
    """Append the launch."""
    if one.outcome != "fits":
        raise SystemExit(f"{one.cell}: {one.failure}")
    launch = one.launches[0]
    line = Recorded(
        cell=one.cell,
        round=round_id,
        date=launch.date,
        delay=delay,
        beside=beside,
        side=side,
        step_seconds=[round(seconds, 7) for seconds in one.by_launch("step_time_seconds")[0]],
        control_seconds=[round(seconds, 7) for seconds in one.by_launch("control_seconds")[0]],
        pace_seconds=[] if side else [round(seconds, 7) for seconds in one.by_launch("pace_seconds")[0]],
        load=float(launch.conditions["load_1min"]),
    )
    with (DATA / f"{name}.jsonl").open("a") as file:
        file.write(codec.encode_line(line) + "\n")


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 4 or not set(sys.argv[3:]) <= KINDS.keys():
        raise SystemExit(__doc__)
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 10, sys.argv[3:] or list(KINDS))
