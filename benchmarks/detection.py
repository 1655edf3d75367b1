"""Computes the tables of docs/data/detection from the trials that benchmarks/record_trials.py has recorded.

python benchmarks/detection.py
"""

import itertools
import statistics
from collections.abc import Callable, Sequence

import grid_delays
from record_trials import DATA, Recorded
from result_tables import write_table

from perfsuite.features.prove.selftest.fault_rows import interval_of as binomial
from perfsuite.records import codec

TRIALS = ("cell", "delay", "red", "open", "pairs, median", "seconds, median", "slowest")
SPREADS = ("cell", "time", "pairs", "spread of a pair")
GRID = ("delay", "found", "red elsewhere", "pairs, median", "seconds, median", "slowest")
OPEN = ("open", "undecided")  # as it is called, and as it was when the first trials were recorded


def main() -> None:
    """Write the tables, and print the sentence for the README's front."""
    trials = codec.read_lines(DATA, Recorded)
    runs = codec.read_lines(grid_delays.DATA, grid_delays.DelayRun)
    write_table("detection/trials", TRIALS, table(trials))
    write_table("detection/spreads", SPREADS, spreads(trials))
    write_table("detection/grid", GRID, grid_table(runs))
    print(sentence(trials))


def table(trials: Sequence[Recorded]) -> list[tuple[str, ...]]:
    """One row for each delay, all cells together and each alone."""
    rows: list[tuple[str, ...]] = []
    for cell in [None, *sorted({one.cell for one in trials})]:
        for delay in sorted({one.delay for one in trials}):
            made = [one for one in trials if one.delay == delay and cell in (None, one.cell)]
            if not made:
                continue
            rows.append(
                (
                    cell or "all",
                    f"{100 * delay:g} %",
                    counted(made, is_red),
                    counted(made, is_open),
                    f"{statistics.median(pairs_of(one) for one in made):g}",
                    f"{statistics.median(one.seconds for one in made):.0f}",
                    f"{max(one.seconds for one in made):.0f}",
                )
            )
    return rows


def grid_table(runs: Sequence[grid_delays.DelayRun]) -> list[tuple[str, ...]]:
    """One row for each delay, and another for what began with stored baselines, whose seconds include measuring."""
    rows: list[tuple[str, ...]] = []
    for stored, case in itertools.product((False, True), grid_delays.CASES):
        made = [one for one in runs if (one.case, one.stored) == (case.name, stored)]
        if not made:
            continue
        pairs = f"{statistics.median(one.pairs for one in made):g}"
        rows.append(
            (
                f"{case.name}{', stored baselines' * stored}",
                share([one.found for one in made]) if case.share else "–",
                share([bool(one.elsewhere) for one in made]),
                "–" if stored else pairs,
                f"{statistics.median(one.seconds for one in made):.0f}",
                f"{max(one.seconds for one in made):.0f}",
            )
        )
    return rows


def spreads(trials: Sequence[Recorded]) -> list[tuple[str, ...]]:
    """The standard deviation of a pair's difference without a delay, by metric and cell."""
    rows: list[tuple[str, ...]] = []
    for cell in sorted({one.cell for one in trials}):
        for metric in sorted({metric for one in trials for metric in one.differences}):
            found = [d for one in trials if one.cell == cell and not one.delay for d in one.differences.get(metric, [])]
            if len(found) > 1:
                rows.append((cell, metric, str(len(found)), f"{100 * statistics.stdev(found):.2f} %"))
    return rows


def is_red(one: Recorded) -> bool:
    return "regressed" in [one.statuses[metric] for metric in one.differences]


def is_open(one: Recorded) -> bool:
    found = {one.statuses[metric] for metric in one.differences}
    return not is_red(one) and not found.isdisjoint(OPEN)


def pairs_of(one: Recorded) -> int:
    return max(map(len, one.differences.values()))


def counted(trials: Sequence[Recorded], asks: Callable[[Recorded], bool]) -> str:
    """Of how many it is true."""
    return share([asks(one) for one in trials])


def share(hits: Sequence[bool]) -> str:
    """``29 of 30 (83 to 100 %)``."""
    low, high = binomial(sum(hits), len(hits))
    return f"{sum(hits)} of {len(hits)} ({100 * low:.0f} to {100 * high:.0f} %)"


def sentence(trials: Sequence[Recorded]) -> str:
    """What the README's front says."""
    told = [
        f"+{100 * delay:g} % in {sum(map(is_red, made))} of {len(made)}"
        for delay in (0.03, 0.05)
        if (made := [one for one in trials if one.delay == delay])
    ]
    null = [one for one in trials if not one.delay]
    seconds = statistics.median(one.seconds for one in trials)
    return (
        f"Measured on a shared two-core machine at loads from {min(one.load for one in trials):.0f} to "
        f"{max(one.load for one in trials):.0f}: trials found {', '.join(told)} cases, and called "
        f"{sum(map(is_red, null))} of {len(null)} without a change red, in {seconds:.0f} s at the median"
    )


if __name__ == "__main__":
    main()
