"""What attaching to a script costs its timed steps.

    python benchmarks/script_overhead.py [--pairs 8] [--steps 30] [--hardware h200_x1]

The same script runs with perfsuite and without, in turns, with steps of about 50 ms on a core and 10 ms on a GPU. It
writes the loss and the clocks of every step itself. Prints the ratio of a timed step, and ends with status 1 if a loss
differs in any bit.
"""

import argparse
import math
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from perfsuite.catalog.cell import Cell, make_cell, parse_hardware
from perfsuite.catalog.cpu_kernels import pinned
from perfsuite.catalog.registry import Catalog
from perfsuite.catalog.scripts import ENGINE, script
from perfsuite.errors import Refused
from perfsuite.records.measurement import STEP_TIME
from perfsuite.records.step_kinds import FEWEST_SEEN, TRACED_STEPS, steps_of_script, warmup_of_script
from perfsuite.run.runner import Runner, Settings
from perfsuite.settings.kernels import PORTABLE

WARMUP = 5
MORE = 5  # steps beyond those that perfsuite needs
SCRIPT = """
import sys, time
import torch

device, (batch, width) = sys.argv[3], {"cpu": (160, 768), "cuda": (1024, 4096)}[sys.argv[3]]
torch.manual_seed(0)
layers = [layer for _ in range(6) for layer in (torch.nn.Linear(width, width), torch.nn.ReLU())]
model = torch.nn.Sequential(*layers).to(device)
optimizer = torch.optim.AdamW(model.parameters())
examples = torch.utils.data.TensorDataset(torch.randn(batch * int(sys.argv[2]), width))
with open(sys.argv[1], "w") as file:
    before = time.perf_counter(), time.process_time()
    for (rows,) in torch.utils.data.DataLoader(examples, batch_size=batch, shuffle=True):
        rows = rows.to(device)
        loss = (model(rows) - rows).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        now = time.perf_counter(), time.process_time()
        print(repr(loss.item()), now[0] - before[0], now[1] - before[1], file=file, flush=True)
        before = now
"""
Rows = list[tuple[str, float, float]]


@dataclass(frozen=True)
class Pair:
    """One launch without perfsuite and one with it: the typical seconds of a step by the clock and of the processor,
    the step time that perfsuite reports (None if it reports none), and how many losses were compared and differ.
    """

    walls: tuple[float, ...]
    processors: tuple[float, ...]
    reported: float | None
    compared: int
    different: int

    @property
    def time_ratio(self) -> float:
        """A step with perfsuite, by one without."""
        return self.walls[1] / self.walls[0]

    @property
    def processor_ratio(self) -> float:
        """The same of processor time."""
        return self.processors[1] / self.processors[0]


def read(file: Path) -> Rows:
    """The loss of each step, its seconds by the clock, and those of the processor."""
    rows = [line.split() for line in file.read_text().splitlines()]
    return [(loss, float(wall), float(cpu)) for loss, wall, cpu in rows]


def command_of(folder: Path, made: int, device: str) -> tuple[str, ...]:
    """What trains. It runs in a copy of its folder, so it writes elsewhere."""
    return ("python", "train.py", str(folder / "out" / "steps.txt"), str(made), device)


def without(runner: Runner, cell: Cell, folder: Path, made: int) -> Rows:
    """By itself, with the kernels and the one thread that perfsuite gives it, and with the machine for itself."""
    variables = {**pinned(dict(os.environ), PORTABLE), "OMP_NUM_THREADS": "1"}
    with runner.lease(cell) as devices:
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, devices))
        words = [sys.executable, *command_of(folder, made, cell.hardware.torch_device)[1:]]
        subprocess.run(words, cwd=folder / "source", env=variables, check=True)
    return read(folder / "out" / "steps.txt")


def attached(runner: Runner, cell: Cell, folder: Path) -> tuple[Rows, float | None]:
    """Measured by perfsuite, with the step time that it reports. Raises Refused if it cannot be measured."""
    measurement = runner.measure(cell)
    if measurement.failure:
        raise Refused(measurement.failure.message)
    step = measurement.readings.get(STEP_TIME)  # an emulated GPU has none
    return read(folder / "out" / "steps.txt"), None if step is None else float(step.value)


def _typical(seconds: Sequence[float]) -> float:
    """The median of the faster half, which a busy neighbour disturbs least."""
    return statistics.median(sorted(seconds)[: (len(seconds) + 1) // 2])


def pairs(hardware: str, count: int, steps: int) -> Iterator[Pair]:
    """So many pairs of launches, the first side by turns. Raises Refused if perfsuite cannot measure the script."""
    device = parse_hardware(hardware, Catalog()).torch_device
    first = FEWEST_SEEN + TRACED_STEPS + warmup_of_script(WARMUP)
    timed = slice(first + 1, first + steps)  # the first interval has what the last warm-up step leaves behind
    made = steps_of_script(steps, WARMUP, device) + MORE
    with tempfile.TemporaryDirectory() as name, ExitStack() as opened:
        folder = Path(name).resolve()
        for part in ("source", "out"):
            (folder / part).mkdir()
        (folder / "source" / "train.py").write_text(SCRIPT)
        trained = script("train", shlex.join(command_of(folder, made, device)), folder / "source")
        catalog = Catalog(extra_models=(trained,))
        cell = make_cell("train", ENGINE, hardware, catalog)
        runner = opened.enter_context(closing(Runner(catalog, Settings(steps=steps, warmup=WARMUP))))
        for number in range(count):
            sides: dict[str, Rows] = {}
            for side in ("with", "without") if number % 2 else ("without", "with"):
                if side == "with":
                    sides[side], reported = attached(runner, cell, folder)
                else:
                    sides[side] = without(runner, cell, folder, made)
            compared = list(zip(sides["with"], sides["without"], strict=False))
            timed_rows = [sides[side][timed] for side in ("without", "with")]
            walls = tuple(_typical([wall for _, wall, _ in rows]) for rows in timed_rows)
            processors = tuple(_typical([processor for _, _, processor in rows]) for rows in timed_rows)
            different = sum(one[0] != other[0] for one, other in compared)
            yield Pair(walls, processors, reported, len(compared), different)


def main() -> int:
    """Measure pairs, and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--hardware", default="cpu_x1")
    arguments = parser.parse_args()
    made = []
    for number, pair in enumerate(pairs(arguments.hardware, arguments.pairs, arguments.steps), 1):
        made.append(pair)
        reported = "no time" if pair.reported is None else f"{pair.reported * 1e3:.2f} ms"
        print(
            f"pair {number}: step {pair.walls[0] * 1e3:.2f} ms, with perfsuite {pair.walls[1] * 1e3:.2f} ms (it "
            f"reports {reported}): {pair.time_ratio:.4f}, of processor time {pair.processor_ratio:.4f}; "
            f"{pair.compared} losses compared",
            flush=True,
        )
    for title, ratios in (
        ("time", [one.time_ratio for one in made]),
        ("processor time", [one.processor_ratio for one in made]),
    ):
        logs = [math.log(ratio) for ratio in ratios]
        error = statistics.stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else math.inf
        print(
            f"{title} of a timed step, with / without: {math.exp(statistics.fmean(logs)):.4f} "
            f"(median {statistics.median(ratios):.4f}, standard error {error:.4f})"
        )
    different = sum(one.different for one in made)
    print(f"losses that differ: {different}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
