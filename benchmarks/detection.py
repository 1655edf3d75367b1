"""Computes docs/detection.md from the trials that benchmarks/record_trials.py has recorded.

python benchmarks/detection.py
"""

import itertools
import statistics
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

import grid_delays
from record_trials import DATA, Recorded

from perfsuite.features.prove.selftest.fault_rows import interval_of as binomial
from perfsuite.records import codec

PAGE = Path(__file__).parent.parent / "docs" / "detection.md"
OPEN = ("open", "undecided")  # as it is called, and as it was when the first trials were recorded


def main() -> None:
    """Write the page, and print the sentence for the README's front."""
    trials = codec.read_lines(DATA, Recorded)
    runs = codec.read_lines(grid_delays.DATA, grid_delays.DelayRun)
    PAGE.write_text(page(trials, runs))
    print(sentence(trials))


def page(trials: Sequence[Recorded], runs: Sequence[grid_delays.DelayRun]) -> str:
    """The whole page."""
    loads = [one.load for one in trials]
    rounds = sorted({one.round for one in trials})
    cells = sorted({one.cell for one in trials})
    parts = [
        "# What a trial can see",
        "When is a slower step red? A trial launches two sides in turns and compares their times. Here both sides were "
        "the same code, but side B waited a little longer in every step. A good trial is red where there is a delay, "
        "and never where there is none. Each count is k of n, with its 95 % interval (Clopper and Pearson 1934).",
        f"{len(trials)} trials of {' and '.join(f'`{cell}`' for cell in cells)}, in {len(rounds)} rounds from "
        f"{rounds[0]} to {rounds[-1]}, on a shared machine of {trials[0].cores} cores. Other work ran beside them: the "
        f"load was {min(loads):.1f} to {max(loads):.1f}, median {statistics.median(loads):.1f}. On such a machine "
        "stored times differ by more than these delays, so every change began a trial.",
        "\n".join(table(trials)),
        "A trial compares four times: the fenced and the unfenced step, the iteration, and the processor time. It ends "
        "with the first that is slower beyond doubt, and is red for it. It is open if none is slower, and the "
        "pairs did not decide one of them ([how pairs decide](verdicts.md#how-pairs-decide)). How far apart two "
        "launches in turns are, without a delay:",
        "\n".join(spreads(trials)),
        "`python benchmarks/grid_error_rates.py few 300` simulates today's rule for questions of 1 to 11 cells. "
        "`python benchmarks/error_rates.py` simulates stored times with noise between runs.",
        "## What a grid trial can see",
        f"{len(runs)} trials of {len(grid_delays.CELLS)} cells with every engine and every family of the default grid "
        "(`--perf-against`, and `pytest --perf` with stored baselines), against a wheel of transformers whose layers "
        "take longer: in all cells, in those of one engine, in one cell, or in none. Recorded on "
        f"{trials[0].cores} cores from {min(one.date for one in runs)} to {max(one.date for one in runs)}. A delay is "
        "found if a line names exactly the cells that have it. [Simulated error rates](grid_error_rates.md) are of "
        "thousands of runs.",
        "\n".join(grid_table(runs)),
        "Made by `python benchmarks/record_trials.py`, `python benchmarks/grid_delays.py` and "
        "`python benchmarks/detection.py`.",
    ]
    wrapped = [part if part.startswith(("#", "|")) else textwrap.fill(part, 120) for part in parts]
    return "\n\n".join(wrapped) + "\n"


def table(trials: Sequence[Recorded]) -> list[str]:
    """One row for each delay, all cells together and each alone."""
    rows = ["| cell | delay | red | open | pairs, median | seconds, median | slowest |", "|---" * 7 + "|"]
    for cell in [None, *sorted({one.cell for one in trials})]:
        for delay in sorted({one.delay for one in trials}):
            made = [one for one in trials if one.delay == delay and cell in (None, one.cell)]
            if not made:
                continue
            rows.append(
                f"| {cell or 'all'} | {100 * delay:g} % | {counted(made, is_red)} | {counted(made, is_open)} "
                f"| {statistics.median(pairs_of(one) for one in made):g} "
                f"| {statistics.median(one.seconds for one in made):.0f} | {max(one.seconds for one in made):.0f} |"
            )
    return rows


def grid_table(runs: Sequence[grid_delays.DelayRun]) -> list[str]:
    """One row for each delay, and another for what began with stored baselines, whose seconds include measuring."""
    rows = ["| delay | found | red elsewhere | pairs, median | seconds, median | slowest |", "|---" * 6 + "|"]
    for stored, case in itertools.product((False, True), grid_delays.CASES):
        made = [one for one in runs if (one.case, one.stored) == (case.name, stored)]
        if not made:
            continue
        pairs = f"{statistics.median(one.pairs for one in made):g}"
        rows.append(
            f"| {case.name}{', stored baselines' * stored} "
            f"| {share([one.found for one in made]) if case.share else '–'} "
            f"| {share([bool(one.elsewhere) for one in made])} | {'–' if stored else pairs} "
            f"| {statistics.median(one.seconds for one in made):.0f} | {max(one.seconds for one in made):.0f} |"
        )
    return rows


def spreads(trials: Sequence[Recorded]) -> list[str]:
    """The standard deviation of a pair's difference without a delay, by metric and cell."""
    rows = ["| cell | time | pairs | spread of a pair |", "|---" * 4 + "|"]
    for cell in sorted({one.cell for one in trials}):
        for metric in sorted({metric for one in trials for metric in one.differences}):
            found = [d for one in trials if one.cell == cell and not one.delay for d in one.differences.get(metric, [])]
            if len(found) > 1:
                rows.append(f"| {cell} | {metric} | {len(found)} | {100 * statistics.stdev(found):.2f} % |")
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
