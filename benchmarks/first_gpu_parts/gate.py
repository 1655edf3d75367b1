"""Whether trials on this GPU find steps that are a little slower: of one cell, with real delays."""

from contextlib import closing
from dataclasses import replace

import record_trials

from first_gpu_parts.results import NO_TIMES, NotDone, Results
from perfsuite.errors import PerfsuiteError, Refused
from perfsuite.records.formats import timestamp
from perfsuite.run.runner import Runner, Settings
from perfsuite.run.sides import RUNNING, Side

DELAYS = (5, 0, 2, 1)  # percent of each step; the one that must be found comes first


def try_delays(results: Results) -> None:
    """One trial for each delay that has none yet."""
    side, cell = Side(RUNNING, results.catalog), results.names[0]
    items, tried = gate_items(results), results.without_result("gate")
    for percent in DELAYS:
        if items[item_of(percent)] or item_of(percent) in tried:
            continue
        try:
            if results.emulated:
                run_delayed(results, replace(side, faults=record_trials.delayed(percent)), cell)
            results.keep(record_trials.trial(side, cell, percent, timestamp()))
        except PerfsuiteError as error:
            results.keep(NotDone(part="gate", item=item_of(percent), why=str(error)))
        print(f"{cell}, {item_of(percent)} slower: tried", flush=True)


def run_delayed(results: Results, side: Side, cell: str) -> None:
    """Run the delayed side once. Raises Refused: that it has no times, or why it failed."""
    with closing(Runner(results.catalog, Settings(steps=1, warmup=0))) as runner:
        failure = runner.measure(side.cell(cell)).failure
    raise Refused(failure.message if failure else NO_TIMES)


def gate_items(results: Results) -> dict[str, bool]:
    """The delays, and which of them have been tried."""
    tried = {round(100 * one.delay) for one in results.lines(record_trials.Recorded)}
    return {item_of(percent): percent in tried for percent in DELAYS}


def item_of(percent: int) -> str:
    """How the page names a delay."""
    return f"{percent} %"
