"""Whether exact metrics repeat under load: python benchmarks/repeat.py [CELL …] [--launches N] [--hogs K] [--nice I]

Launches ten cells N times each next to K processes that keep the cores busy; with --scripts, a user's script on two
ranks, under DDP, FSDP2, ZeRO-2 and ZeRO-3. Prints every exact metric of every rank
that differs from the first launch, including the parts of the memory's peak. Exit code 1 if any byte differs.
"""

import argparse
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest import mock

import msgspec

from perfsuite.catalog.cell import parse_cell
from perfsuite.catalog.registry import Catalog
from perfsuite.catalog.scripts import script
from perfsuite.records.sample import RankSample
from perfsuite.run.runner import Runner, Settings

CELLS = (
    "t5_tiny-single-cpu_x1",
    "t5_tiny-ddp+acc2-cpu_x2",
    "llama_tiny-zero2+bf16-cpu_x2",
    "t5_tiny-zero3-cpu_x2",
    "t5_tiny-zero3+bf16+ckpt+acc2-cpu_x2",
    "gpt2_tiny-fsdp1-cpu_x2",
    "gpt2_tiny-fsdp2-cpu_x2",
    "llama_tiny-tp-cpu_x2",
    "gpt2_tiny_l4-pp_1f1b+acc4-cpu_x2",
    "gpt2_tiny-fsdp2+dp2-cpu_x4",
)
SCRIPTS = ("ddp", "fsdp2", "zero2", "zero3")
SCRIPT = Path(__file__).with_name("distributed_script.py")
HOG = "import os, sys; os.nice(int(sys.argv[1]))\nwhile True: pass"


class Keeping(Runner):
    """A runner that keeps the samples of each rank of the last cell."""

    def __init__(self, catalog, settings):
        super().__init__(catalog, settings)
        run = self._launcher.run

        def run_and_keep(*arguments):
            self.samples = run(*arguments)
            return self.samples

        mock.patch.object(self._launcher, "run", run_and_keep).start()


def exact(samples: list[RankSample], metrics):
    """Rank, metric and part → value."""
    return {
        (sample.rank, name, part): value
        for sample in samples
        for name, reading in sample.readings.items()
        if metrics[name].hold == "exact"
        for part, value in {"value": reading.value, **reading.parts}.items()
    }


def with_scripts(folder: Path) -> Catalog:
    """The catalog with a script of each kind, which lies in that folder."""
    shutil.copy(SCRIPT, folder)
    command = f"torchrun --nproc-per-node 2 {SCRIPT.name}"
    return Catalog(extra_models=tuple(script(f"train_{kind}", f"{command} {kind}", folder) for kind in SCRIPTS))


def main():  # noqa: PLR0915  one after another
    """Launch, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cells", nargs="*", metavar="CELL")
    parser.add_argument("--scripts", nargs="*", choices=SCRIPTS)
    parser.add_argument("--launches", type=int, default=20)
    parser.add_argument("--hogs", type=int, default=2)
    parser.add_argument("--nice", default="0")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    catalog = with_scripts(folder)
    metrics = catalog.all("metric")
    kinds = SCRIPTS if arguments.scripts == [] else arguments.scripts or ()
    names = [f"train_{kind}-script-cpu_x2" for kind in kinds] or arguments.cells or CELLS
    cells = [parse_cell(text, catalog) for text in names]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # and the hogs with it
    hogs = [subprocess.Popen([sys.executable, "-c", HOG, arguments.nice]) for _ in range(arguments.hogs)]
    runner = Keeping(catalog, Settings(steps=1, warmup=0))
    first: dict[str, dict[tuple[int, str, str], float]] = {}
    launches, differing = 0, 0
    failed: dict[str, int] = dict.fromkeys(names, 0)  # launches that differ, or have failed
    try:
        for number in range(arguments.launches):
            for cell in cells:
                measurement = runner.measure(cell)
                launches += 1
                if measurement.failure:
                    differing += 1
                    failed[cell.id] += 1
                    print(f"{cell.id}: launch {number + 1}: {msgspec.json.encode(measurement.failure).decode()}")
                    continue
                found = exact(runner.samples, metrics)
                there = first.setdefault(cell.id, found)
                changed = [key for key in sorted(there.keys() | found.keys()) if there.get(key) != found.get(key)]
                differing += bool(changed)
                failed[cell.id] += bool(changed)
                for key in changed:
                    rank, name, part = key
                    print(
                        f"{cell.id}: launch {number + 1}, rank {rank}: {name} ({part}) is {found.get(key)}, "
                        f"but it was {there.get(key)}",
                        flush=True,
                    )
    finally:
        runner.close()
        shutil.rmtree(folder)
        for hog in hogs:
            hog.kill()
            hog.wait()
        for name, number in failed.items():
            print(f"{name}: {len(first.get(name, ()))} exact numbers, {number} launches differ")
        print(
            f"{launches} launches of {len(cells)} cells next to {len(hogs)} busy loops: {differing} differ.",
            flush=True,
        )
    return int(bool(differing))


if __name__ == "__main__":
    sys.exit(main())
