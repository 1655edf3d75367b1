"""How small a slow-down the gate sees, and how often it is wrong: computed from launches that were recorded for real.

    python benchmarks/record_launches.py quiet 32  # records, about a minute a round
    python benchmarks/detection.py                 # writes docs/detection.md and .png; needs kaleido and chromium

Nothing is simulated: a comparison takes some of the recorded launches, those without a delay as the old side and those
with one real delay as the new. Delay 0 gives the false alarms. Which rounds are taken is drawn, so comparisons share
launches.
"""

import random
import statistics
import textwrap
from collections import defaultdict
from pathlib import Path

from record_launches import DATA, STEPS_IN_TURNS, Recorded

from perfsuite import records
from perfsuite.catalog.definitions import Metric
from perfsuite.gate.compare import differences
from perfsuite.gate.lines import Scope
from perfsuite.gate.noise import CONFIRMATIONS, LAUNCHES, level_of, relative
from perfsuite.gate.paired import MOST_BLOCKS, PAIRS, THRESHOLD, conclude, enough, interval
from perfsuite.gate.timing import hold_time
from perfsuite.records import Launch, Machine, Measurement, Reading
from perfsuite.units import show_ratio, show_seconds

DOCS = Path(__file__).parents[1] / "docs"
COMPARISONS = 200  # per delay, over all cells
SHARE = 0.8  # of the recorded pairs in a comparison, so that no two comparisons are of the same ones
TOLERANCE = 0.1  # perf_time_tolerance's default
TIME = Metric(name="step_time_seconds", title="step time", show=show_seconds, hold="time")
Round = dict[tuple[str, float], list[Recorded]]  # by way and B's delay; of a pair: A, then B
WAYS = ("stored baseline", "A/B")


def load(file: Path) -> dict[str, list[Round]]:
    """The recorded rounds of each cell, oldest first; a round that was cut off is left out."""
    cells: dict[str, dict[str, Round]] = {}
    for line in file.read_text().splitlines():
        one = records.decode(line.encode(), Recorded, str(file))
        key = (WAYS[bool(one.side)], max(one.delay, one.beside))
        cells.setdefault(one.cell, {}).setdefault(one.round, defaultdict(list))[key].append(one)
    size = max(sum(map(len, one.values())) for rounds in cells.values() for one in rounds.values())
    whole = {
        cell: [one for _, one in sorted(rounds.items()) if sum(map(len, one.values())) == size]
        for cell, rounds in cells.items()
    }
    needed, fewest = LAUNCHES + 1 + CONFIRMATIONS, min(map(len, whole.values()))
    if fewest < needed:
        raise SystemExit(f"{file} has {fewest} whole rounds of some cell; a comparison needs {needed}: record more.")
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


def stored(rounds: list[Round], delay: float, draw: random.Random) -> str:
    """A baseline of neighbouring rounds, and new launches, of rounds that follow one another elsewhere in time."""
    needed = 1 + CONFIRMATIONS
    at = draw.randrange(len(rounds) - LAUNCHES - needed + 1)
    later = draw.randrange(at + LAUNCHES, len(rounds) - needed + 1)
    before, after = rounds[at : at + LAUNCHES], rounds[later : later + needed]
    old = measurement([one[WAYS[0], 0.0][0] for one in before])
    launches = [one[WAYS[0], delay][-1] for one in after]
    for count in range(1, needed + 1):
        new = measurement(launches[:count])
        readings = (side.readings["step_time_seconds"] for side in (new, old))
        status = hold_time(TIME, *readings, Scope(new, old, "single", TOLERANCE)).status
        if status != "suspected":
            break
    return status


def paired(rounds: list[Round], delay: float, draw: random.Random) -> str:
    """Most of the rounds, each a pair in turns by servers of its own, in an order drawn: as many as ``perfsuite ab``
    adds. Of two equal launches it is drawn too which is A.
    """
    pairs: list[list[Recorded]] = []
    for one in draw.sample(rounds, min(PAIRS * MOST_BLOCKS, round(SHARE * len(rounds)))):
        pair = one[WAYS[1], delay]
        pairs.append(pair if delay else draw.sample(pair, len(pair)))
        a, b = ([measurement([pair[side]]) for pair in pairs] for side in (0, 1))
        apart = differences(a, b, "step_time_seconds")
        if len(pairs) % PAIRS == 0 and enough(apart):
            break
    return conclude(interval(apart), THRESHOLD)


def table(cells: dict[str, list[Round]]) -> dict[str, dict[float, tuple[int, int]]]:
    """For each way to compare and each delay, how many comparisons were red, and how many there were."""
    counts: dict[str, dict[float, tuple[int, int]]] = {}
    names = sorted(cells)
    for way, compare in zip(WAYS, (stored, paired), strict=True):
        counts[way] = {}
        for delay in sorted(delay for name, delay in cells[names[0]][0] if name == way):
            draw = random.Random(0)
            said = [compare(cells[names[n % len(names)]], delay, draw) for n in range(COMPARISONS)]
            counts[way][delay] = said.count("regressed"), len(said)
    return counts


def describe(name: str, cells: dict[str, list[Round]]) -> str:
    """What was recorded, and how noisy it was."""
    every = [one for rounds in cells.values() for some in rounds for launches in some.values() for one in launches]
    loads = [one.load for one in every]
    plain = [[level_of(one.step_seconds) for some in rounds for one in some[WAYS[0], 0.0]] for rounds in cells.values()]
    turns = [
        [level_of(b.step_seconds) - level_of(a.step_seconds) for a, b in _nulls(rounds)] for rounds in cells.values()
    ]
    return (
        f"*{name}*: {len(every):,} launches in {len(next(iter(cells.values())))} rounds; load {min(loads):.1f} to "
        f"{max(loads):.1f}, median {statistics.median(loads):.1f}; launches without a delay spread by "
        f"{_spreads(plain)}, the ratio of two in turns by {_spreads(turns)}."
    )


def _nulls(rounds: list[Round]) -> list[list[Recorded]]:
    return [one[WAYS[1], 0.0] for one in rounds]


def _spreads(cells: list[list[float]]) -> str:
    return ", ".join(show_ratio(relative(statistics.stdev(levels))) for levels in cells)


def main() -> None:
    """Print the table, and write page and plot."""
    import plotly.graph_objects as go

    recordings = {file.stem: load(file) for file in sorted(DATA.glob("*.jsonl"), reverse=True)}
    if not recordings:
        raise SystemExit(f"{DATA} holds no recording: python benchmarks/record_launches.py makes one.")
    counts = {f"{way}, {name}": red for name, cells in recordings.items() for way, red in table(cells).items()}
    delays = sorted({delay for red in counts.values() for delay in red})
    lines = [f"| | {' | '.join('no delay' if not delay else f'+{show_ratio(delay)}' for delay in delays)} |"]
    lines += ["|" + "---|" * (1 + len(delays))]
    for name, red in counts.items():
        shares = {delay: show_ratio(found / count) for delay, (found, count) in red.items()}
        lines.append(f"| {name} | {' | '.join(shares.get(delay, '') for delay in delays)} |")
    names = ", ".join(f"`{cell}`" for cell in next(iter(recordings.values())))
    paragraphs = [
        "# What the gate can see",
        f"Share of {COMPARISONS} comparisons that were red, by the real delay that was put into every step. Computed "
        f"from recorded launches of the cells {names} on a shared machine of two cores, in more than one of its moods:",
        "\n".join(textwrap.fill(f"- {describe(*one)}", 120, subsequent_indent="  ") for one in recordings.items()),
        "\n".join(lines),
        f"A stored baseline is of {LAUNCHES} launches, its tolerance {show_ratio(TOLERANCE)}; a suspicion is confirmed "
        f"by {CONFIRMATIONS} further launches. A/B takes at most {MOST_BLOCKS} blocks of two pairs whose "
        f"{STEPS_IN_TURNS} steps alternate, here at most {show_ratio(SHARE)} of those recorded, and calls it a "
        f"regression if the whole 99 % interval lies above +{show_ratio(THRESHOLD)}. What the noise hides is "
        "`unstable` or `undecided`, which "
        "are not counted as red here.",
        "![Detection curves](detection.png)",
        "Made by `python benchmarks/record_launches.py` and `python benchmarks/detection.py`.",
    ]
    page = "\n\n".join(one if one[0] in "|!-" else textwrap.fill(one, 120) for one in paragraphs)
    records.write_bytes(DOCS / "detection.md", page.encode() + b"\n")
    figure = go.Figure()
    for name, red in counts.items():
        x, y = [100 * delay for delay in red], [100 * found / count for found, count in red.values()]
        figure.add_scatter(x=x, y=y, name=name, mode="lines+markers")
    figure.update_layout(
        template="plotly_white",
        xaxis_title="delay in every step, %",
        yaxis_title="comparisons that are red, %",
    )
    records.write_bytes(DOCS / "detection.png", figure.to_image(format="png", width=800, height=450))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
