"""How long `perfsuite site` takes for many runs, how large its pages are, and how fast a browser opens them.

`python benchmarks/site_speed.py` writes the monthly files of simulated runs into a temporary folder, builds the
dashboard in a process of its own, and opens its first page and a cell's page with `--browser`, a Chromium (it needs
playwright). `--keep DIR` leaves everything there. `--write` puts the table into docs/data/nights/site_speed.csv.
"""

import argparse
import datetime
import math
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
from change_points import drift
from result_tables import write_table

from perfsuite.features.nights.row import NightRow

MODELS = ("gpt2_tiny", "t5_tiny", "bloom_tiny", "llama_tiny", "megatron_tiny")
ENGINES = ("ddp", "zero1", "zero2", "zero3", "fsdp2", "tp2", "pp_1f1b", "single")
RECIPES = ("", "+bf16", "+ckpt", "+bf16+ckpt", "+acc2")
EXACT = {  # a typical cell's
    "peak_memory_bytes": 3837952,
    "allocations": 1482,
    "tokens": 1024,
    "communication_bytes": 2621440,
    "communication_theory_bytes": 2621440,
    "collectives": 24,
    "model_flop": 88080384,
    "hardware_flop": 88080384,
    "host_peak_bytes": 912680550,
    "setup_memory_bytes": 2228224,
    "parameters_bytes": 564224,
    "master_parameters_bytes": 1128448,
    "optimizer_state_bytes": 2256896,
    "gradients_bytes": 564224,
    "leaked_objects": 0,
    "operators": 2764,
    "python_calls": 41023,
    "synchronisations": 2,
}
CLOSE = {"loss": 6.27251, "gradient_norm": 1.6312, "update_norm": 0.02213, "update_error": 3.1e-6}
TIMES = ("step_time_seconds", "iteration_time_seconds", "unfenced_step_time_seconds", "processor_time_seconds")
SHOWN = ("forward_seconds", "backward_seconds", "optimizer_seconds", "exposed_communication_seconds")


def cells(count: int) -> list[str]:
    """So many names."""
    names = [f"{model}-{engine}{recipe}-cpu_x2" for model in MODELS for engine in ENGINES for recipe in RECIPES]
    return names[:: max(1, len(names) // count)][:count]


def write_runs(folder: Path, runs: int, count: int, days: float, machines: int = 1) -> None:
    """Monthly files of ``runs`` runs of ``count`` cells, over so many days, by so many machines in turns; every tenth
    cell steps in time, every twentieth in memory.
    """
    rows: list[NightRow] = []
    dice, names, month = random.Random(0), cells(count), ""
    begin = datetime.datetime(2026, 11, 22, 2, 17, tzinfo=datetime.UTC) - datetime.timedelta(days=days)
    machine, base = drift(dice), [dice.uniform(0.01, 0.5) for _ in names]
    steps = {at: (dice.randrange(runs // 5, runs), dice.uniform(0.05, 0.2)) for at in range(0, count, 10)}
    steps[0] = (runs - min(runs, 5), 0.12)
    failing = {at: dice.randrange(runs - min(runs, 40), runs) for at in range(7, count, 40)}
    encoder = msgspec.json.Encoder(order="deterministic")

    def flush() -> None:
        if rows:
            (folder / f"{month}.jsonl").write_bytes(b"".join(encoder.encode(row) + b"\n" for row in rows))
        rows.clear()

    for run in range(runs):
        at = begin + datetime.timedelta(days=(run + 1) * days / runs)
        if at.isoformat()[:7] != month:
            flush()
            month = at.isoformat()[:7]
        commit = f"{dice.getrandbits(48):012x}"
        share = run / runs
        versions = {
            "accelerate": f"1.{int(10 + 5 * share)}.0",
            "cpu kernels": "avx2",
            "deepspeed": f"0.19.{int(9 * share)}",
            "python": "3.11.7",
            "torch": f"2.{int(11 + 2.9 * share)}.0",
            "transformers": f"5.{int(8 + 15 * share)}.0",
        }
        for number, name in enumerate(names):
            night, size = steps.get(number, (runs, 0.0))
            stepped, moved = run >= night, 1 + (size if run >= night and number % 20 == 0 else 0)
            usual = base[number] * math.exp(machine[int(share * 399)] + dice.gauss(0, 0.008) + (size if stepped else 0))
            if dice.random() < 0.02:
                usual *= 1 + dice.expovariate(10)
            numbers: dict[str, float] = {
                one: round(value * moved) if one == "peak_memory_bytes" else value for one, value in EXACT.items()
            }
            numbers |= CLOSE
            for factor, one in enumerate(TIMES):
                numbers[one] = float(f"{usual * (1 + factor / 100):.9g}")
            for one in SHOWN:
                numbers[one] = float(f"{usual * dice.uniform(0.2, 0.25):.9g}")
            numbers["tokens_per_second"] = float(f"{1024 / usual:.9g}")
            numbers["mfu"] = float(f"{0.001 / usual:.9g}")
            red = run == night and number % 10 == 0
            row = NightRow(
                date=(at + datetime.timedelta(seconds=20 * number)).isoformat(timespec="seconds"),
                cell=name,
                machine=f"6d2f46c6e{run % machines:03x}",
                device="AMD EPYC",
                commit=commit,
                versions=versions,
                metrics=numbers,
                status="regressed" if red else "ok",
                note="1 of 12 metrics regressed" if red else "",
                red=("step_time_seconds",) if red else (),
                trial=("caused by transformers alone",) if red and number % 20 == 0 else (),
            )
            if failing.get(number) is not None and run >= failing[number]:
                row = msgspec.structs.replace(
                    row, status="failed", outcome="failed", note="rank 1 died: SIGSEGV", metrics={}
                )
            rows.append(row)
    flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000, metavar="N", help="Runs (10000).")
    parser.add_argument("--cells", type=int, default=100, metavar="N", help="Cells of a run (100).")
    parser.add_argument("--days", type=float, default=1095.0, metavar="N", help="Days that the runs cover (1095).")
    parser.add_argument("--machines", type=int, default=1, metavar="N", help="Machines that take turns (1).")
    parser.add_argument("--browser", default="", metavar="FILE", help="A Chromium that opens the pages.")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="Leave the files and the pages there.")
    parser.add_argument("--write", action="store_true", help="Write the table of docs/.")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep or Path(temporary)
        runs, site = folder / "results", folder / "site"
        if not runs.is_dir():
            runs.mkdir(parents=True)
            write_runs(runs, arguments.runs, arguments.cells, arguments.days, arguments.machines)
        size = sum(path.stat().st_size for path in runs.iterdir())
        begin = time.perf_counter()
        command = [sys.executable, "-m", "perfsuite.cli.main", "site", str(runs), "--folder", str(site)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=folder)
        seconds, used = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
        pages = sorted((site / "cells").iterdir(), key=lambda path: path.stat().st_size)
        lines = [
            ("runs × cells", f"{arguments.runs:,} × {arguments.cells}"),
            ("monthly files", f"{size / 1e6:,.0f} MB"),
            ("build, wall time", f"{seconds:.1f} s"),
            ("build, processor time of all processes", f"{used.ru_utime + used.ru_stime:.1f} s"),
            ("largest memory of a process", f"{used.ru_maxrss / 1e6:.1f} GB"),
            ("first page", f"{(site / 'index.html').stat().st_size / 1e3:,.0f} kB"),
            ("largest page of a cell", f"{pages[-1].stat().st_size / 1e3:,.0f} kB"),
        ]
        if arguments.browser:
            for name, path in (("first page", site / "index.html"), ("largest page of a cell", pages[-1])):
                lines.append((f"{name}, opened in Chromium", f"{opened(path.absolute(), arguments.browser):.2f} s"))
        for line in lines:
            print(*line)
        if arguments.write:
            write_table("nights/site_speed", ("what", "measured"), lines)


def opened(path: Path, browser: str) -> float:
    """Seconds from the address until the page has loaded and drawn its first frame."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        page = chromium.new_page(viewport={"width": 1280, "height": 900})
        begin = time.perf_counter()
        page.goto(path.as_uri(), wait_until="load")
        page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        seconds = time.perf_counter() - begin
        chromium.close()
    return seconds


if __name__ == "__main__":
    main()
