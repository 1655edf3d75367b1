"""How often a ladder raises a false alarm: ten equal rungs, each judged as the newest of those up to it.

    python benchmarks/false_alarms.py [--rungs 10] [--folder FOLDER]

Runs each rung once, and judges every position, as `perfsuite ladder run` would have on the day that rung was the
newest. All alarms are false, also those that a new rung raises over an older one. Prints their count; exit code 1 if
more than one was raised. Also prints how many slow-downs in the newest rung's recorded numbers raise an alarm, since a
ladder that never warns is useless.
"""

import argparse
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from perfsuite.environments import lockfile
from perfsuite.features.ladder import asv, building, ladder, story
from perfsuite.features.ladder import asv_results as results
from perfsuite.features.ladder import series_steps as steps
from perfsuite.features.ladder.asv_results import Benchmark, Key, Run, Value, show
from perfsuite.features.ladder.ladder import Definition, Ladder, Rung
from perfsuite.features.ladder.series_steps import SeriesStep
from perfsuite.system.units import show_ratio

SUITE = Path(__file__).parent / "identical"
RELEASE = "packaging==24.0"
ALLOWED = 1  # alarms
SLOWER = (1.2, 1.5, 2.0, 3.0)
PARTS = ("value", "low", "high")


def main() -> int:
    """Run, judge, count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rungs", type=int, default=10)
    parser.add_argument("--folder", type=Path, help="Keep the ladder here, and continue with it.")
    arguments = parser.parse_args()
    folder = (arguments.folder or Path(tempfile.mkdtemp(prefix="false-alarms-"))).absolute()
    built = build(folder, arguments.rungs)
    for rung in built.rungs:
        if not results.last_run(folder, built, rung.name):
            results.keep(folder, asv.run(folder, built, rung))
    runs, known = story.last_runs(folder, built), results.benchmarks(folder, built)
    alarms = judge(built, runs, known)
    judged = len(known) * (len(built.rungs) - 1)
    for step in alarms:
        print(f"rung {step.new_rung}: {show(step.key)} {step.old:.3g} -> {step.new:.3g} s")
    for key in sorted({key for run in runs.values() for key, _ in run.by_key()}):
        numbers = [
            value.value for run in runs.values() for at, value in run.by_key() if at == key and value.value is not None
        ]
        apart = show_ratio(max(numbers) / min(numbers) - 1)
        print(f"{show(key)}: {min(numbers):.4g} to {max(numbers):.4g} s, {apart} apart")
    print(f"{len(alarms)} alarms in {judged} judgements")
    for factor in SLOWER:
        print(f"{factor} times slower: {len(warned(built, runs, known, factor))} of {judged} raise an alarm")
    return int(len(alarms) > ALLOWED)


def judge(built: Ladder, runs: dict[str, Run], known: dict[str, Benchmark]) -> list[SeriesStep]:
    """The alarms of every position as the newest: all that were not reported when the rung below was the newest."""
    alarms: list[SeriesStep] = []
    told: set[tuple[Key, str, str]] = set()
    for count in range(2, len(built.rungs) + 1):
        found = steps.find(built.rungs[:count], runs, known)
        alarms += [step for step in found if _name(step) not in told]
        told = set(map(_name, found))
    return alarms


def _name(step: SeriesStep) -> tuple[Key, str, str]:
    """The identity of an alarm for its readers: asv changes its numbers with every rung."""
    return step.key, step.new_rung, step.kind


def warned(built: Ladder, runs: dict[str, Run], known: dict[str, Benchmark], factor: float) -> list[SeriesStep]:
    """The alarms over every position as the newest, its numbers being so many times larger."""
    alarms = []
    for count in range(2, len(built.rungs) + 1):
        newest = built.rungs[count - 1].name
        slower = msgspec.structs.replace(runs[newest], values=_times(runs[newest], factor))
        found = steps.find(built.rungs[:count], runs | {newest: slower}, known)
        alarms += [step for step in found if step.new_rung == newest]
    return alarms


def _times(run: Run, factor: float) -> dict[str, dict[str, Value]]:
    """A run's numbers, so many times larger."""
    return {
        name: {
            key: msgspec.structs.replace(
                value, **{part: getattr(value, part) and getattr(value, part) * factor for part in PARTS}
            )
            for key, value in values.items()
        }
        for name, values in run.values.items()
    }


def build(folder: Path, count: int) -> Ladder:
    """A ladder of equal rungs, a day apart."""
    version, python = lockfile.find_python(sys.executable)
    definition = Definition(library="packaging", first="24.0", suite=str(SUITE), python=python)
    start = datetime(2024, 3, 10, tzinfo=UTC)
    wanted = [
        Rung(name=f"{number:02d}", date=(start + timedelta(days=number)).isoformat(), releases=(RELEASE,))
        for number in range(count)
    ]
    empty = Ladder(definition=definition, suite=ladder.read_suite(SUITE), python_version=version)
    if (folder / "ladder.json").is_file():
        empty = ladder.read_ladder(folder)
    built = building.add(folder, empty, wanted)
    asv.configure(folder, built)
    return built


if __name__ == "__main__":
    sys.exit(main())
