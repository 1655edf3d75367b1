"""What attaching to a script costs its timed steps: python benchmarks/script_overhead.py [--pairs 8] [--steps 30]

The same script of steps of about 50 ms runs with perfsuite and without, in turns. It writes the loss and the clocks of
every step itself. Prints the ratio of a timed step, and ends with status 1 if a loss differs in any bit.
"""

import argparse
import math
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from perfsuite.catalog.cell import Cell, make_cell
from perfsuite.catalog.cpu_kernels import PORTABLE, pinned
from perfsuite.catalog.registry import Catalog
from perfsuite.catalog.scripts import ENGINE, script
from perfsuite.records.step_kinds import FEWEST_SEEN, TRACED_STEPS, steps_of_script, warmup_of_script
from perfsuite.run.runner import Runner, Settings

WARMUP = 5
MORE = 5  # steps beyond those that perfsuite needs
SCRIPT = """
import sys, time
import torch

torch.manual_seed(0)
model = torch.nn.Sequential(*[layer for _ in range(6) for layer in (torch.nn.Linear(768, 768), torch.nn.ReLU())])
optimizer = torch.optim.AdamW(model.parameters())
examples = torch.utils.data.TensorDataset(torch.randn(160 * int(sys.argv[2]), 768))
with open(sys.argv[1], "w") as file:
    before = time.perf_counter(), time.process_time()
    for (rows,) in torch.utils.data.DataLoader(examples, batch_size=160, shuffle=True):
        loss = (model(rows) - rows).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        now = time.perf_counter(), time.process_time()
        print(repr(loss.item()), now[0] - before[0], now[1] - before[1], file=file, flush=True)
        before = now
"""
Rows = list[tuple[str, float, float]]


def read(file: Path) -> Rows:
    """The loss of each step, its seconds by the clock, and those of the processor."""
    rows = [line.split() for line in file.read_text().splitlines()]
    return [(loss, float(wall), float(cpu)) for loss, wall, cpu in rows]


def command_of(folder: Path, made: int) -> tuple[str, ...]:
    """What trains. It runs in a copy of its folder, so it writes elsewhere."""
    return ("python", "train.py", str(folder / "out" / "steps.txt"), str(made))


def without(runner: Runner, cell: Cell, folder: Path, made: int) -> Rows:
    """By itself, with the kernels and the one thread that perfsuite gives it, and with the machine for itself."""
    variables = {**pinned(dict(os.environ), PORTABLE), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    with runner.lease(cell):
        words = [sys.executable, *command_of(folder, made)[1:]]
        subprocess.run(words, cwd=folder / "source", env=variables, check=True)
    return read(folder / "out" / "steps.txt")


def attached(runner: Runner, cell: Cell, folder: Path) -> tuple[Rows, float]:
    """Measured by perfsuite, with the step time that it reports."""
    measurement = runner.measure(cell)
    if measurement.failure:
        raise SystemExit(measurement.failure.message)
    return read(folder / "out" / "steps.txt"), measurement.readings["step_time_seconds"].value


def _typical(seconds: Sequence[float]) -> float:
    """The median of the faster half, which a busy neighbour disturbs least."""
    return statistics.median(sorted(seconds)[: (len(seconds) + 1) // 2])


def main() -> int:
    """Measure pairs, the first side by turns, and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--steps", type=int, default=30)
    arguments = parser.parse_args()
    settings = Settings(steps=arguments.steps, warmup=WARMUP)
    first = FEWEST_SEEN + TRACED_STEPS + warmup_of_script(WARMUP)
    timed = slice(first + 1, first + arguments.steps)  # the first interval has what the last warm-up step leaves behind
    made = steps_of_script(arguments.steps, WARMUP, "cpu") + MORE
    walls, processors, different = [], [], 0
    with tempfile.TemporaryDirectory() as name, ExitStack() as opened:
        folder = Path(name).resolve()
        for part in ("source", "out"):
            (folder / part).mkdir()
        (folder / "source" / "train.py").write_text(SCRIPT)
        catalog = Catalog(extra_models=(script("train", shlex.join(command_of(folder, made)), folder / "source"),))
        cell = make_cell("train", ENGINE, "cpu_x1", catalog)
        runner = opened.enter_context(closing(Runner(catalog, settings)))
        for pair in range(arguments.pairs):
            sides: dict[str, Rows] = {}
            for side in ("with", "without") if pair % 2 else ("without", "with"):
                if side == "with":
                    sides[side], reported = attached(runner, cell, folder)
                else:
                    sides[side] = without(runner, cell, folder, made)
            compared = list(zip(sides["with"], sides["without"], strict=False))
            different += sum(one[0] != other[0] for one, other in compared)
            times = {
                side: [_typical(column) for column in list(zip(*rows[timed], strict=True))[1:]]
                for side, rows in sides.items()
            }
            walls.append(times["with"][0] / times["without"][0])
            processors.append(times["with"][1] / times["without"][1])
            print(
                f"pair {pair + 1}: step {times['without'][0] * 1e3:.2f} ms, with perfsuite "
                f"{times['with'][0] * 1e3:.2f} ms (it reports {reported * 1e3:.2f} ms): {walls[-1]:.4f}, of "
                f"processor time {processors[-1]:.4f}; {len(compared)} losses compared"
            )
    for title, ratios in (("time", walls), ("processor time", processors)):
        logs = [math.log(ratio) for ratio in ratios]
        error = statistics.stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else math.inf
        print(
            f"{title} of a timed step, with / without: {math.exp(statistics.fmean(logs)):.4f} "
            f"(median {statistics.median(ratios):.4f}, standard error {error:.4f})"
        )
    print(f"losses that differ: {different}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
