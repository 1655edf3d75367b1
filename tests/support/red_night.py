"""A prepared night, from the repository's own baselines: DeepSpeed is newer, which costs ZeRO-3 cells 7 % of their peak
memory; one other cell is noisy. Run as a script, it writes the lines of a report:

    python tests/support/red_night.py run.jsonl
"""

import math
import random
import sys
from collections.abc import Iterable
from pathlib import Path

import msgspec

from perfsuite.catalog.cell import parse_cell
from perfsuite.catalog.registry import Catalog
from perfsuite.compare.judge import judge
from perfsuite.compare.pool import run_of
from perfsuite.records import codec
from perfsuite.records.baseline import Baseline
from perfsuite.records.change import Cause, Change, How, TrialReport
from perfsuite.records.curves import pack, unpack
from perfsuite.records.measurement import Launch, Measurement
from perfsuite.records.reasons import NothingShown
from perfsuite.records.result import Result
from perfsuite.records.sample import Reading
from perfsuite.records.verdict import Bound, Limit, LineInterval, Status
from perfsuite.run.asked import Asked

FOLDER = Path(__file__).parents[2] / "baselines" / "cpu_x2"
LIBRARY, BEFORE, AFTER = "deepspeed", "0.19.8", "0.20.0"
UPGRADE = Change(LIBRARY, BEFORE, AFTER)
NOISY = "gpt2_tiny-ddp+bf16-cpu_x2"
GROWTH = 0.07
RATES = ("tokens_per_second", "flops_per_rank", "mfu", "hfu")  # they are of the step time
COMMAND = "pytest --perf benchmarks/test_cells.py"
DATE = "2026-11-23T02:{:02}:00+00:00"
KILLED = "Rank 1 was killed by SIGKILL, probably because the machine ran out of memory."


def red_night(cells: int = 60, folder: Path = FOLDER) -> list[Result]:
    """The results of that night, in the order of the cells' names. Same numbers in every call."""
    dice, catalog = random.Random(18), Catalog()
    stored = [codec.read(path, Baseline) for path in sorted(folder.glob("*.json"))]
    fitting = [
        one for one in stored if one.measurement.outcome == "fits" and "step_time_seconds" in one.measurement.readings
    ]
    fitting.sort(key=lambda one: ("zero3" not in one.cell and one.cell != NOISY, one.cell))
    chosen = sorted(fitting[:cells], key=lambda one: one.cell)
    return [_result(one, number, dice, catalog) for number, one in enumerate(chosen)]


def _result(stored: Baseline, number: int, dice: random.Random, catalog: Catalog) -> Result:
    cell = parse_cell(stored.cell, catalog)
    metrics = catalog.metrics(cell.strategy.engine.process)
    baseline = _with_runs(_before(stored), metrics, dice)
    new = _tonight(baseline.measurement, number, dice)
    verdict = judge(new, baseline, metrics, strategy=cell.strategy.name)
    verdict = msgspec.structs.replace(verdict, collect=COMMAND)
    open_lines = [line for line in verdict.lines if line.status == "open"]
    if open_lines or "zero3" in stored.cell:  # the trial answers them, by the code of a real one
        noisy = stored.cell == NOISY
        asked = Asked(cell, new, baseline, verdict, [UPGRADE])
        cause = Cause(changes=[UPGRADE], how=How.ALONE)
        report = TrialReport(
            against=[UPGRADE],
            pairs=16 if noisy else 3,
            seconds=40.0 + number,
            causes=[cause] if "zero3" in stored.cell else [],
        )
        lines = {line.metric: _tried(line, noisy, dice) for line in open_lines}
        verdict = msgspec.structs.replace(asked.answered(report, lines, Status.OPEN, metrics), collect=COMMAND)
    return Result(measurement=new, baseline=baseline, verdict=verdict)


def _tried(line, noisy, dice):
    """The line of a time after its trial, which has no phases."""
    line = msgspec.structs.replace(line, phases=[])
    if noisy:
        interval = LineInterval(low=0.959, high=1.712, pairs=16)
        why = NothingShown(change=0.03)
        return msgspec.structs.replace(line, status=Status.OPEN, ratio=1.281, interval=interval, reason=why)
    change = dice.gauss(0, 0.4) / 100
    interval = LineInterval(low=1 + change - 0.012, high=1 + change + 0.013, pairs=3)
    limit = Limit(bound=Bound.PAIRS, value=0.03)
    return msgspec.structs.replace(
        line, status=Status.OK, ratio=1 + change, limit=limit, interval=interval, reason=None
    )


def _before(stored: Baseline) -> Baseline:
    """As it was with the older release; baselines from before format 4 get a curve that leads to their peak."""
    versions = stored.measurement.versions
    if LIBRARY in versions:
        versions = versions | {LIBRARY: BEFORE}
    curve = stored.measurement.memory_curve or _curve(stored.measurement.readings["peak_memory_bytes"].parts)
    measured = msgspec.structs.replace(stored.measurement, versions=versions, memory_curve=curve)
    return msgspec.structs.replace(stored, measurement=measured)


def _curve(parts: dict[str, int]) -> dict[str, str]:
    """A step of 10 moments of forward, 10 of backward and 4 of the optimizer, whose 11th is the peak."""
    phases = ["forward"] * 10 + ["backward"] * 10 + ["optimizer"] * 4
    rise = [*range(1, 11), 10, *range(9, 0, -1), 0, 0, 0, 0]
    moving = {"activations", "communication", "gradients"}
    points = []
    for moment, part in enumerate(rise):
        shares = {name: part / 10 if name in moving else float(moment == 10) for name in parts}
        still = ("parameters", "master_parameters", "optimizer_state", "batch")
        points.append((phases[moment], [int(parts[name] * (1 if name in still else shares[name])) for name in parts]))
    return pack(points, list(parts))


def _fatter_curve(curve: dict[str, str], more: int) -> dict[str, str]:
    """More is alive throughout the backward."""
    phases, sizes = unpack(curve)
    names = list(dict.fromkeys([*sizes, "communication"]))
    rows = [[sizes.get(name, [0] * len(phases))[at] for name in names] for at in range(len(phases))]
    for at, phase in enumerate(phases):
        rows[at][names.index("communication")] += more if phase == "backward" else 0
    return pack(list(zip(phases, rows, strict=True)), names)


def _with_runs(baseline: Baseline, metrics: Iterable, dice: random.Random) -> Baseline:
    """Twelve nights before this one, each a little different."""
    first = run_of(baseline.measurement, metrics)
    runs = []
    for night in range(12):
        factor = math.exp(dice.gauss(0, 0.15 if baseline.cell == NOISY else 0.006))
        values = {name: value * factor for name, value in first.values.items()}
        runs.append(msgspec.structs.replace(first, date=f"2026-11-{10 + night}T02:00:00+00:00", values=values))
    return msgspec.structs.replace(baseline, times=runs)


def _tonight(old: Measurement, number: int, dice: random.Random) -> Measurement:
    versions = old.versions | ({LIBRARY: AFTER} if LIBRARY in old.versions else {})
    slower = 1.38 if old.cell == NOISY else math.exp(dice.gauss(0, 0.005))
    readings = {
        name: _time(reading, slower, dice) if name.endswith("_seconds") else reading
        for name, reading in old.readings.items()
    }
    for name in RATES:
        if name in readings:
            readings[name] = msgspec.structs.replace(readings[name], value=readings[name].value / slower)
    curve = old.memory_curve
    if "zero3" in old.cell:
        readings |= _fatter(readings)
        more = readings["peak_memory_bytes"].value - old.readings["peak_memory_bytes"].value
        curve = _fatter_curve(curve, int(more))
    launch = Launch(
        date=DATE.format(number % 60), conditions={"load_1min": round(2 + dice.random(), 2), "busy_share": 0.81}
    )
    return msgspec.structs.replace(old, versions=versions, readings=readings, launches=[launch], memory_curve=curve)


def _time(reading: Reading, factor: float, dice: random.Random) -> Reading:
    spread = 0.2 if factor > 1.3 else 0.015
    samples = [None if one is None else one * factor * math.exp(dice.gauss(0, spread)) for one in reading.samples[:10]]
    return Reading(value=reading.value * factor, samples=samples, ranks=[one * factor for one in reading.ranks])


def _fatter(readings: dict[str, Reading]) -> dict[str, Reading]:
    """Each gathered parameter keeps a second buffer until the backward ends."""
    peak = readings["peak_memory_bytes"]
    more = int(peak.value * GROWTH)
    parts = peak.parts | {"communication": peak.parts.get("communication", 0) + more}
    name = "communication: aten::empty_like @ (backward)"
    suspects = dict(sorted((peak.suspects | {name: more}).items(), key=lambda item: -item[1]))
    found = {
        "peak_memory_bytes": Reading(
            value=peak.value + more, parts=parts, suspects=suspects, ranks=[peak.value + more] * 2
        )
    }
    if "allocations" in readings:
        count = readings["allocations"]
        extra = int(count.value) // 50  # 2 %
        parts = count.parts | {"backward": count.parts.get("backward", 0) + extra}
        suspects = count.suspects | {"backward: aten::empty_like @ (backward)": extra}
        found["allocations"] = Reading(
            value=count.value + extra, parts=parts, suspects=suspects, ranks=[count.value + extra] * 2
        )
    return found


if __name__ == "__main__":
    results = red_night(int(sys.argv[2]) if len(sys.argv) > 2 else 60)
    Path(sys.argv[1]).write_text("".join(f"{codec.encode_line(one)}\n" for one in results))
