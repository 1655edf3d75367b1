"""How small a slow-down the gate sees, and how often it is wrong: computed from launches that were recorded for real.

    python benchmarks/record_launches.py 30        # records, about 40 s a round
    python benchmarks/detection.py                 # writes docs/detection.md and .png; needs kaleido and chromium

Nothing is simulated: a comparison takes some of the recorded launches in the order in which they ran, those without a
delay as the old side and those with one real delay as the new. Delay 0 gives the false alarms. Which rounds are taken
is drawn, so comparisons share launches.
"""

import math
import random
import statistics
import textwrap
from collections import defaultdict
from pathlib import Path

from record_launches import FILE, Recorded

from perfsuite import records
from perfsuite.catalog.definitions import Metric
from perfsuite.gate.lines import Scope
from perfsuite.gate.noise import CONFIRMATIONS, LAUNCHES
from perfsuite.gate.paired import MOST_BLOCKS, PAIRS, THRESHOLD, conclude, enough, interval
from perfsuite.gate.timing import hold_time
from perfsuite.records import Launch, Machine, Measurement, Reading
from perfsuite.units import show_ratio, show_seconds

DOCS = Path(__file__).parents[1] / "docs"
COMPARISONS = 200  # per delay, over all cells
TOLERANCE = 0.1  # perf_time_tolerance's default
TIME = Metric(name="step_time_seconds", title="step time", show=show_seconds, hold="time")
Rounds = list[dict[float, list[Recorded]]]  # by round, then by delay: two launches without, one with each


def load() -> dict[str, Rounds]:
    """The recorded rounds of each cell, oldest first; a round that was cut off is left out."""
    cells: dict[str, dict[str, dict[float, list[Recorded]]]] = {}
    if not FILE.exists():
        raise SystemExit(f"{FILE} does not exist: python benchmarks/record_launches.py records it.")
    for line in FILE.read_text().splitlines():
        one = records.decode(line.encode(), Recorded, str(FILE))
        launches = cells.setdefault(one.cell, {}).setdefault(one.round, defaultdict(list))
        launches[one.delay].append(one)
    size = max(sum(map(len, one.values())) for rounds in cells.values() for one in rounds.values())
    whole = {
        cell: [one for _, one in sorted(rounds.items()) if sum(map(len, one.values())) == size]
        for cell, rounds in cells.items()
    }
    needed, fewest = LAUNCHES + 1 + CONFIRMATIONS, min(map(len, whole.values()))
    if fewest < needed:
        raise SystemExit(f"{FILE} has {fewest} whole rounds of some cell; a comparison needs {needed}: record more.")
    return whole


def measurement(launches: list[Recorded]) -> Measurement:
    """The launches as the gate would have them."""
    readings = {}
    for name, field in (("step_time_seconds", "step_seconds"), ("control_seconds", "control_seconds")):
        samples = [seconds for launch in launches for seconds in getattr(launch, field)]
        readings[name] = Reading(value=statistics.median(samples), samples=samples)
    return Measurement(
        cell=launches[0].cell,
        outcome="fits",
        world_size=1,
        readings=readings,
        versions={"torch": "the same"},
        machine=Machine(identity="one", device="one", cores=2, memory_bytes=1),
        launches=[Launch(date=launch.date) for launch in launches],
        wall_seconds=0.0,
    )


def stored(rounds: Rounds, delay: float, draw: random.Random) -> str:
    """A baseline of neighbouring rounds, and new launches, of rounds that follow one another elsewhere in time."""
    needed = 1 + CONFIRMATIONS
    at = draw.randrange(len(rounds) - LAUNCHES - needed + 1)
    later = draw.randrange(at + LAUNCHES, len(rounds) - needed + 1)
    before, after = rounds[at : at + LAUNCHES], rounds[later : later + needed]
    old = measurement([one[0.0][0] for one in before])
    launches = [one[delay][-1] for one in after]
    for count in range(1, needed + 1):
        new = measurement(launches[:count])
        readings = (side.readings["step_time_seconds"] for side in (new, old))
        status = hold_time(TIME, *readings, Scope(new, old, "single", TOLERANCE)).status
        if status != "suspected":
            break
    return status


def paired(rounds: Rounds, delay: float, draw: random.Random) -> str:
    """Rounds, each a server of its own and one pair; as many as ``perfsuite ab`` adds, in an order that is drawn."""
    differences: list[float] = []
    for one in draw.sample(rounds, min(PAIRS * MOST_BLOCKS, len(rounds))):
        a, b = (math.log(statistics.median(side.step_seconds)) for side in (one[0.0][0], one[delay][-1]))
        differences.append(b - a)
        if len(differences) % PAIRS == 0 and enough(differences):
            break
    return conclude(interval(differences), THRESHOLD)


def table(cells: dict[str, Rounds]) -> dict[str, dict[float, tuple[int, int]]]:
    """For each way to compare and each delay, how many comparisons were red, and how many there were."""
    delays = sorted(next(iter(cells.values()))[0])
    counts: dict[str, dict[float, tuple[int, int]]] = {}
    for name, compare in (("stored baseline", stored), ("A/B", paired)):
        counts[name] = {}
        for delay in delays:
            draw, names = random.Random(0), sorted(cells)
            said = [compare(cells[names[n % len(names)]], delay, draw) for n in range(COMPARISONS)]
            counts[name][delay] = said.count("regressed"), len(said)
    return counts


def main() -> None:
    """Print the table, and write page and plot."""
    import plotly.graph_objects as go

    cells = load()
    counts = table(cells)
    launches = sum(len(launches) for rounds in cells.values() for one in rounds for launches in one.values())
    loads = [one.load for rounds in cells.values() for each in rounds for some in each.values() for one in some]
    delays = list(next(iter(counts.values())))
    lines = [f"| | {' | '.join('no delay' if not delay else f'+{show_ratio(delay)}' for delay in delays)} |"]
    lines += ["|" + "---|" * (1 + len(delays))]
    for name, red in counts.items():
        lines.append(f"| {name} | {' | '.join(show_ratio(found / count) for found, count in red.values())} |")
    names = ", ".join(f"`{cell}`" for cell in cells)
    paragraphs = [
        "# What the gate can see",
        f"Share of {COMPARISONS} comparisons that were red, by the real delay that was put into every step. Computed "
        f"from {launches:,} recorded launches of {len(cells)} cells ({names}) on a shared machine of two cores, whose "
        f"load was {min(loads):.1f} to {max(loads):.1f}, median {statistics.median(loads):.1f}.",
        "\n".join(lines),
        f"A stored baseline is of {LAUNCHES} launches, its tolerance {show_ratio(TOLERANCE)}; a suspicion is confirmed "
        f"by {CONFIRMATIONS} further launches. A/B takes at most {MOST_BLOCKS} blocks of four launches, and calls it a "
        f"regression if the whole 99 % interval lies above +{show_ratio(THRESHOLD)}.",
        "![Detection curves](detection.png)",
        "Made by `python benchmarks/record_launches.py` and `python benchmarks/detection.py`.",
    ]
    page = "\n\n".join(one if one[0] in "|!" else textwrap.fill(one, 120) for one in paragraphs)
    records.write_bytes(DOCS / "detection.md", page.encode() + b"\n")
    figure = go.Figure()
    for name, red in counts.items():
        x, y = [100 * delay for delay in red], [100 * found / count for found, count in red.values()]
        figure.add_scatter(x=x, y=y, name=name, mode="lines+markers")
    figure.update_layout(
        template="plotly_white",
        xaxis_title="delay in every step, %",
        yaxis_title="comparisons that are red, %",
        legend={"x": 0.7, "y": 0.1},
    )
    records.write_bytes(DOCS / "detection.png", figure.to_image(format="png", width=800, height=450))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
