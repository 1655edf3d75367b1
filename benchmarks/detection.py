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
from collections import Counter, defaultdict
from pathlib import Path

from record_launches import DATA, STEPS_IN_TURNS, Recorded

from perfsuite import codec
from perfsuite.catalog.definitions import Metric
from perfsuite.gate.compare import differences
from perfsuite.gate.lines import Scope
from perfsuite.gate.noise import CONFIRMATIONS, LAUNCHES, level_of, relative
from perfsuite.gate.paired import MOST_BLOCKS, PAIRS, THRESHOLD, conclude, enough, interval
from perfsuite.gate.timing import at_pace, hold_time
from perfsuite.records import Launch, Machine, Measurement, Reading
from perfsuite.units import show_ratio, show_seconds

DOCS = Path(__file__).parents[1] / "docs"
COMPARISONS = 200  # per delay, over all cells
SHARE = 0.8  # of the recorded pairs in a comparison, so that no two comparisons are of the same ones
TOLERANCE = 0.1  # perf_time_tolerance's default
TIME = Metric(name="step_time_seconds", title="step time", show=show_seconds, hold="time")
Round = dict[float, list[Recorded]]  # by B's delay; of a pair: A, then B
FIELDS = {name: name.replace("_time", "") for name in ("step_time_seconds", "control_seconds", "pace_seconds")}
WAYS = ("stored baseline", "A/B")


def load(file: Path) -> dict[str, dict[str, list[Round]]]:
    """The rounds of each cell by way to compare, oldest first; a round that was cut off is left out."""
    ways: dict[str, dict[str, dict[str, Round]]] = {way: {} for way in WAYS}
    for line in file.read_text().splitlines():
        one = codec.decode(line.encode(), Recorded, str(file))
        rounds = ways[WAYS[bool(one.side)]].setdefault(one.cell, {})
        rounds.setdefault(one.round, defaultdict(list))[max(one.delay, one.beside)].append(one)
    return {way: {cell: _whole(rounds, file) for cell, rounds in cells.items()} for way, cells in ways.items() if cells}


def _whole(rounds: dict[str, Round], file: Path) -> list[Round]:
    size = max(sum(map(len, one.values())) for one in rounds.values())
    whole = [one for _, one in sorted(rounds.items()) if sum(map(len, one.values())) == size]
    needed = LAUNCHES + 1 + CONFIRMATIONS
    if len(whole) < needed:
        raise SystemExit(f"{file} has {len(whole)} whole rounds of a cell; a comparison needs {needed}: record more.")
    return whole


def measurement(launches: list[Recorded]) -> Measurement:
    """The launches as the gate would have them."""
    readings = {}
    for name, field in FIELDS.items():
        samples = [seconds for launch in launches for seconds in getattr(launch, field)]
        if samples:
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
    old = measurement([one[0.0][0] for one in before])
    launches = [one[delay][-1] for one in after]
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
        pair = one[delay]
        pairs.append(pair if delay else draw.sample(pair, len(pair)))
        a, b = ([measurement([pair[side]]) for pair in pairs] for side in (0, 1))
        apart = differences(a, b, "step_time_seconds")
        if len(pairs) % PAIRS == 0 and enough(apart):
            break
    return conclude(interval(apart), THRESHOLD)


def table(ways: dict[str, dict[str, list[Round]]]) -> dict[str, dict[float, Counter[str]]]:
    """For each way to compare and each delay, how often the comparisons said what; baselines that spread too wide to
    be stored are drawn beside those.
    """
    counts: dict[str, dict[float, Counter[str]]] = {}
    for way in ways:
        compare = stored if way == WAYS[0] else paired
        names, counts[way] = sorted(ways[way]), {}
        for delay in sorted(ways[way][names[0]][0]):
            draw = random.Random(0)
            said: Counter[str] = Counter()
            while said.total() - said["unstable"] < COMPARISONS and said.total() < 10 * COMPARISONS:
                said[compare(ways[way][names[said.total() % len(names)]], delay, draw)] += 1
            counts[way][delay] = said
    return counts


def describe(name: str, ways: dict[str, dict[str, list[Round]]]) -> str:
    """What was recorded, and how noisy it was."""
    alone, pairs = ([rounds for _, rounds in sorted(ways.get(way, {}).items())] for way in WAYS)
    loads = [one.load for rounds in (*alone, *pairs) for some in rounds for both in some.values() for one in both]
    text = f"*{name}*: {len(loads):,} launches; load {min(loads):.1f} to {max(loads):.1f}, median "
    text += f"{statistics.median(loads):.1f}. "
    if alone:
        nulls = [[one for some in rounds for one in some[0.0]] for rounds in alone]
        paced = [[at_pace([one.step_seconds], [one.pace_seconds])[0] for one in launches] for launches in nulls]
        text += f"{len(alone[0])} rounds alone, those without a delay spread by "
        text += _spreads([[level_of(one.step_seconds) for one in launches] for launches in nulls])
        text += f", as multiples of the pace by {_spreads([[level_of(one) for one in steps] for steps in paced])}. "
    if pairs:
        twins = [[one[0.0] for one in rounds] for rounds in pairs]
        turns = [[level_of(b.step_seconds) - level_of(a.step_seconds) for a, b in both] for both in twins]
        text += f"{len(pairs[0])} rounds in turns, the ratio of two without a delay spreads by {_spreads(turns)}."
    return text.strip()


def _spreads(cells: list[list[float]]) -> str:
    return ", ".join(show_ratio(relative(statistics.stdev(levels))) for levels in cells)


def main() -> None:
    """Print the table, and write page and plot."""
    import plotly.graph_objects as go

    recordings = {file.stem: load(file) for file in sorted(DATA.glob("*.jsonl"), reverse=True)}
    if not recordings:
        raise SystemExit(f"{DATA} holds no recording: python benchmarks/record_launches.py makes one.")
    said = {f"{way}, {name}": red for name, ways in recordings.items() for way, red in table(ways).items()}
    counts = {
        name: {delay: (words["regressed"], words.total() - words["unstable"]) for delay, words in by_delay.items()}
        for name, by_delay in said.items()
    }
    delays = sorted({delay for red in counts.values() for delay in red})
    lines = [f"| | {' | '.join('no delay' if not delay else f'+{show_ratio(delay)}' for delay in delays)} |"]
    lines += ["|" + "---|" * (1 + len(delays))]
    for name, red in counts.items():
        shares = {delay: show_ratio(found / count) if count else "refused" for delay, (found, count) in red.items()}
        lines.append(f"| {name} | {' | '.join(shares.get(delay, '') for delay in delays)} |")
    refused = [
        f"{show_ratio(by_delay[0.0]['unstable'] / by_delay[0.0].total())} of them ({name})"
        for name, by_delay in said.items()
        if name.startswith(WAYS[0])
    ]
    names = ", ".join(f"`{cell}`" for cell in next(iter(next(iter(recordings.values())).values())))
    paragraphs = [
        "# What the gate can see",
        f"Share of {COMPARISONS} comparisons that were red, by the real delay that was put into every step. Computed "
        f"from recorded launches of the cells {names} on a shared machine of two cores, in more than one of its moods:",
        "\n".join(textwrap.fill(f"- {describe(*one)}", 120, subsequent_indent="  ") for one in recordings.items()),
        "\n".join(lines),
        f"A stored baseline is of {LAUNCHES} launches, its tolerance {show_ratio(TOLERANCE)}; a suspicion is confirmed "
        f"by {CONFIRMATIONS} further launches. Baselines whose launches spread too wide are refused: "
        f"{', '.join(refused)}, here others were drawn. A/B takes at most {MOST_BLOCKS} blocks of two pairs whose "
        f"{STEPS_IN_TURNS} steps alternate, here at most {show_ratio(SHARE)} of those recorded, and calls it a "
        f"regression if the whole 99 % interval lies above +{show_ratio(THRESHOLD)}; `undecided` is not counted as red "
        "here.",
        "![Detection curves](detection.png)",
        "Made by `python benchmarks/record_launches.py` and `python benchmarks/detection.py`.",
    ]
    page = "\n\n".join(one if one[0] in "|!-" else textwrap.fill(one, 120) for one in paragraphs)
    codec.write_bytes(DOCS / "detection.md", page.encode() + b"\n")
    figure = go.Figure()
    for name, red in counts.items():
        drawn = {delay: found / count for delay, (found, count) in red.items() if count}
        x, y = [100 * delay for delay in drawn], [100 * share for share in drawn.values()]
        figure.add_scatter(x=x, y=y, name=name, mode="lines+markers")
    figure.update_layout(
        template="plotly_white",
        xaxis_title="delay in every step, %",
        yaxis_title="comparisons that are red, %",
    )
    codec.write_bytes(DOCS / "detection.png", figure.to_image(format="png", width=800, height=450))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
