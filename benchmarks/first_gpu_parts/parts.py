"""The parts, in the order in which they run, and what runs them: each in a process of its own, within its time."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from first_gpu_parts import gate, memory, overhead, page, suite_run
from first_gpu_parts.results import PartRun, Results
from perfsuite.errors import UsageError
from perfsuite.records.formats import timestamp
from perfsuite.show.html import document
from perfsuite.system.units import show_seconds

FRONT = Path(__file__).resolve().parents[1] / "first_gpu.py"
ENDS = 15.0  # seconds that a part has to end its ranks
MEASURE, PAGE = "measure", "page"


@dataclass(frozen=True)
class Part:
    """What is measured: the items that it wants, with whether each has a result; and the share of the time that it has,
    in seconds of nine minutes. What it leaves unused is for the parts after it.
    """

    name: str
    run: Callable[[Results], None]
    items: Callable[[Results], dict[str, bool]]
    share: float


PARTS = (
    Part("cells", suite_run.measure_cells, suite_run.measured_items, 150),
    Part("predictions", memory.predict, memory.predicted_items, 70),
    Part("capacities", memory.find_capacities, memory.capacity_items, 90),
    Part("gate", gate.try_delays, gate.gate_items, 90),
    Part("overhead", overhead.compare_pairs, overhead.overhead_items, 50),
    Part("baselines", suite_run.record_baselines, suite_run.baseline_items, 75),
)


def run(action: str, folder: Path, cells: Sequence[str] | None, seconds: float) -> int:
    """Run all parts within so many seconds, one of them, or write the page alone. Exit code 1 if something was not
    reached.

    Raises UsageError for an unknown action, without a GPU, and for a wrong cell.
    """
    results = Results.here(folder, cells)
    known = {part.name: part for part in PARTS}
    if action in known:
        known[action].run(results)
        return 0
    if action == MEASURE:
        _run_all(results, time.monotonic() + seconds - ENDS)
    elif action != PAGE:
        raise UsageError(f"{action!r} is no part: {', '.join(['collect', MEASURE, PAGE, *known])}.")
    path = write_page(results)
    not_reached = [item for one in standings(results) for item in one.unfinished]
    print(f"{path} is written." + (f" It lists {len(not_reached)} items that were not reached." if not_reached else ""))
    return int(bool(not_reached))


def _run_all(results: Results, end: float) -> None:
    """Run the parts that want something, one after the other; the page is there after each."""
    for number, part in enumerate(PARTS):
        if _standing(results, part).unfinished:
            rest = sum(later.share for later in PARTS[number:])
            _run_part(results, part, max(0.0, end - time.monotonic()) * part.share / rest)
        standing = _standing(results, part)
        words = f"{standing.done} of {standing.wanted} done, {len(standing.reasons)} without a result"
        print(f"{part.name}: {words}, {show_seconds(max(0.0, end - time.monotonic()))} are left", flush=True)
        try:
            write_page(results)
        except Exception as error:  # a mistake in drawing must not end what measures; the last page raises it
            print(f"the page cannot be drawn yet: {type(error).__name__}: {error}", flush=True)


def _run_part(results: Results, part: Part, limit: float) -> None:
    """Run it in a process group of its own, interrupt it at its limit, and record how it ended."""
    begin, began, stopped = time.monotonic(), timestamp(), False
    command = [sys.executable, str(FRONT), part.name, str(results.folder), "--cells", *results.names]
    with (results.folder / f"{part.name}.log").open("ab") as log:
        running = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            status = running.wait(limit)
        except subprocess.TimeoutExpired:
            stopped, status = True, _stop(running)
        except BaseException:
            _stop(running)
            raise
    taken = {"seconds": time.monotonic() - begin, "limit_seconds": limit}
    results.keep(PartRun(part=part.name, begin=began, **taken, exit_status=status, stopped=stopped))


def _stop(running: subprocess.Popen[bytes]) -> int:
    """Interrupt all of the group as Ctrl-C does, and kill what is left after ENDS. The exit status."""
    os.killpg(running.pid, signal.SIGINT)
    try:
        return running.wait(ENDS)
    except subprocess.TimeoutExpired:
        os.killpg(running.pid, signal.SIGKILL)
        return running.wait()


def standings(results: Results) -> list[page.Standing]:
    """How far each part is."""
    return [_standing(results, part) for part in PARTS]


def _standing(results: Results, part: Part) -> page.Standing:
    items, reasons = part.items(results), results.without_result(part.name)
    return page.Standing(
        part=part.name,
        done=sum(items.values()),
        wanted=len(items),
        reasons={item: why for item, why in reasons.items() if item in items},
        unfinished=tuple(item for item, there in items.items() if not there and item not in reasons),
    )


def write_page(results: Results) -> Path:
    """Write the page from what is there; its path."""
    path = results.folder / "first_gpu.html"
    document.write(path, page.first_gpu_page(results, standings(results)))
    return path
