"""Does a grid trial find delays that are put into a wheel, and what does it say where there are none?

    python -u benchmarks/grid_delays.py [--stored] [--runs N] [--only CASE …]

The wheel is transformers as it is installed, whose layers take longer: each spins for a share of the processor time
since the last layer began, in all cells, in those of one engine, in one cell, or in none. 24 cells have every engine
and every family of the default grid. One line is printed per run, with what it found; its progress goes to the
standard error. Each run is appended to benchmarks/data/grid_delays.jsonl, from which benchmarks/detection.py makes a
table. A run takes some minutes. With --stored it is ``pytest --perf`` in an environment that has the wheel, which
compares with the stored baselines.
"""

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from perfsuite.catalog.registry import Catalog
from perfsuite.compare.grid_groups import Effect
from perfsuite.compare.rounds import Round
from perfsuite.environments.environments import with_releases
from perfsuite.records import codec, report_lines
from perfsuite.records.formats import timestamp
from perfsuite.records.measurement import STEP_TIME
from perfsuite.records.record import Record
from perfsuite.records.verdict import Status
from perfsuite.run.measuring import Measuring
from perfsuite.run.question import Question
from perfsuite.run.runner import Settings
from perfsuite.run.sides import Side
from perfsuite.show.text.grid_words import effect_text

DATA = Path(__file__).parent / "data" / "grid_delays.jsonl"
METRICS = (STEP_TIME, "processor_time_seconds")
MODULE = "transformers/modeling_layers.py"  # all four families' layers are its GradientCheckpointingLayer
CELLS = tuple(
    f"{model}-{strategy}-cpu_x{ranks}"
    for ranks, strategies in (
        (1, {"t5_tiny": ["single"], "gpt2_tiny": ["single", "forward"], "llama_tiny": ["single", "generate"]}),
        (1, {"bloom_tiny": ["single", "forward"]}),
        (2, {"t5_tiny": ["ddp", "zero2", "autotp"], "gpt2_tiny": ["ddp", "fsdp1", "zero1", "zero3"]}),
        (2, {"gpt2_tiny_l4": ["pp_naive", "pp_gpipe+acc4", "pp_1f1b+acc4", "pp_interleaved+acc4"]}),
        (2, {"gpt2_tiny_l4": ["pp_deepspeed+acc4"], "llama_tiny": ["tp", "fsdp2", "zero3"]}),
        (2, {"bloom_tiny": ["fsdp2", "zero3"]}),
    )
    for model, names in strategies.items()
    for strategy in names
)
BODY = "def forward_with_checkpointing(self, *args, **kwargs):\n"
DELAY = """\
            slow = self.__dict__.get("_slow")
            if slow is None:  # asked once: the question takes as long as what is looked for
                slow = self.__dict__["_slow"] = bool({where})
            now = _time.process_time()
            if _began[0] and slow:
                until = now + {share} * (now - _began[0])
                while _time.process_time() < until:
                    pass
            _began[0] = _time.process_time()
"""  # it calls no function that is written in Python: those are counted, and red by themselves
STATE = """

import time as _time

_began = [0.0]
"""
INSTALLERS = ("INSTALLER", "REQUESTED", "direct_url.json")  # what they leave
STEP_SECONDS = 0.03  # of a step, until a run has measured it
SHARDED = 'any(hasattr(one, "ds_id") for one in self.parameters())'  # by ZeRO-3


class DelayRun(Record, frozen=True, kw_only=True):
    """One grid trial: whether it found the delay and named the cells that have it, which cells else it made red, which
    it left open, how many pairs it needed, and what it said. ``stored`` is that ``pytest --perf`` began it.
    """

    date: str
    case: str
    stored: bool = False
    open: tuple[str, ...] = ()
    found: bool
    elsewhere: list[str]
    pairs: int
    seconds: float
    said: list[str]


@dataclass(frozen=True)
class Case:
    """A delay: in which layers, by which share, and in which cells that is. Without a share there is none."""

    name: str
    where: str = "True"
    share: float = 0.0
    cells: str = ""  # part of their ids

    def __contains__(self, cell: str) -> bool:
        return self.share > 0 and self.cells in cell


CASES = (
    Case("nothing"),
    Case("1 % in all cells", share=0.01),
    Case("3 % in the cells of zero3", SHARDED, 0.03, "-zero3-"),
    Case("5 % in one cell", f'"Bloom" in type(self).__name__ and {SHARDED}', 0.05, "bloom_tiny-zero3-"),
)


def wheel(folder: Path, number: int, case: Case) -> str:
    """The requirement of a wheel of the installed transformers with the delay."""
    found = metadata.distribution("transformers")
    version = f"{found.version}+delay{number}"
    path = folder / f"transformers-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for one in found.files or ():
            if one.suffix == ".pyc" or str(one).startswith("..") or one.name in INSTALLERS:
                continue
            text = Path(one.locate()).read_bytes()
            if one.name == "METADATA":
                text = text.replace(f"Version: {found.version}\n".encode(), f"Version: {version}\n".encode(), 1)
            if str(one) == MODULE and case.share:
                delay = DELAY.format(where=case.where, share=case.share)
                assert text.count(BODY.encode()) == 1, f"{MODULE} has another body than {BODY.strip()}"
                text = text.replace(BODY.encode(), (BODY + delay).encode()) + STATE.encode()
            archive.writestr(str(one).replace(f"-{found.version}.dist-info", f"-{version}.dist-info"), text)
    return f"transformers @ {path.as_uri()}"


def found_in(question: Question) -> Iterator[tuple[str, Effect]]:
    """What moved in times."""
    for metric in METRICS:
        for effect in question.pools[metric].effects if metric in question.pools else ():
            yield metric, effect


def judged(case: Case, question: Question, seconds: float) -> DelayRun:
    """What a question has found of a delay, and what else."""
    slower = [one for _, one in found_in(question) if one.status == Status.REGRESSED]
    return DelayRun(
        date=timestamp(),
        case=case.name,
        found=any({*one.cells} == {cell for cell in CELLS if cell in case} for one in slower),
        elsewhere=sorted({cell for one in slower for cell in one.cells if cell not in case}),
        pairs=sum(map(len, question.pairs.values())),
        seconds=seconds,
        said=[f"{metric}: {effect_text(one)} [{one.status}]" for metric, one in found_in(question)],
    )


def environment_with(folder: Path, requirement: str) -> Path:
    """The Python of a new virtual environment that has this wheel before all that is installed here."""
    path = Path(tempfile.mkdtemp(dir=folder))
    subprocess.run([sys.executable, "-m", "venv", path], check=True)
    python, site = path / "bin" / "python", sysconfig.get_path("purelib")
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", "--no-index", requirement], check=True)
    packages = next(path.glob("lib/python*/site-packages"))
    (packages / "zz_here.pth").write_text(f"import site; site.addsitedir({site!r})\n")
    return python


def of_stored_baselines(case: Case, python: Path, folder: Path) -> DelayRun:
    """What ``pytest --perf`` says in that environment."""
    report, cache, begin = folder / "report.jsonl", folder / "cache", time.monotonic()
    report.unlink(missing_ok=True)
    shutil.rmtree(cache / "perfsuite" / "times", ignore_errors=True)  # as on a machine that has measured nothing yet
    command = [
        str(python),
        "-m",
        "pytest",
        "--perf",
        "--perf-budget=30min",
        f"--perf-report={report}",
        "benchmarks/test_cells.py",
    ]
    command += ["-p", "no:cacheprovider", "-k", " or ".join(CELLS)]
    variables = os.environ | {"XDG_CACHE_HOME": str(cache)}
    done = subprocess.run(command, stdout=sys.stderr, env=variables, check=False)
    assert done.returncode in (0, 1), f"pytest ended with status {done.returncode}"
    results = {one.measurement.cell: one for one in report_lines.read_measured(report)}
    assert results.keys() == set(CELLS), sorted(results.keys() ^ set(CELLS))
    red = {name for name, one in results.items() if one.verdict.status == Status.REGRESSED}
    return DelayRun(
        date=timestamp(),
        case=case.name,
        stored=True,
        found=red == {cell for cell in CELLS if cell in case},
        elsewhere=sorted(cell for cell in red if cell not in case),
        open=tuple(sorted(name for name, one in results.items() if one.verdict.status == Status.OPEN)),
        pairs=0,
        seconds=time.monotonic() - begin,
        said=[f"{name}: {one.verdict.status}" for name, one in results.items() if one.verdict.status != Status.OK],
    )


def of_question(case: Case, side: Side, catalog: Catalog, hints: dict[str, float]) -> DelayRun:
    """What a question about times says of the environment here and one with that wheel. Measured steps become hints."""
    begin = time.monotonic()

    def tell(progress: Round) -> None:
        waiting, seconds = progress.waiting, time.monotonic() - begin
        print(f"after {seconds:.0f} s: pair {progress.number} of {waiting} cells", file=sys.stderr, flush=True)

    how = Measuring(catalog, Settings(), Path.cwd(), cells=len(CELLS))
    question = Question(how, Side("here", catalog), side, CELLS, step_seconds=hints, tell=tell)
    question.compare_times()
    for cell, pairs in question.pairs.items():
        if STEP_TIME in pairs.launches[0][0].readings:
            hints[cell] = float(pairs.launches[0][0].readings[STEP_TIME].value)
    return judged(case, question, time.monotonic() - begin)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", nargs="*", choices=[case.name for case in CASES], default=[])
    parser.add_argument("--stored", action="store_true")
    arguments = parser.parse_args()
    cases = [case for case in CASES if not arguments.only or case.name in arguments.only]
    catalog = Catalog()
    hints = dict.fromkeys(CELLS, STEP_SECONDS)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheels = {case: wheel(folder, number, case) for number, case in enumerate(cases)}
        if arguments.stored:
            pythons = {case: environment_with(folder, one) for case, one in wheels.items()}
        else:
            sides = {case: Side(case.name, catalog, with_releases([one])) for case, one in wheels.items()}
        for number in range(arguments.runs):
            for case in cases:
                if arguments.stored:
                    run = of_stored_baselines(case, pythons[case], folder)
                else:
                    run = of_question(case, sides[case], catalog, hints)
                with DATA.open("a") as file:
                    print(codec.encode_line(run), file=file)
                found = ("found" if run.found else "not found") if case.share else "no delay"
                elsewhere = f", red elsewhere: {' '.join(run.elsewhere)}" if run.elsewhere else ""
                taken, said = f"{run.pairs} pairs in {run.seconds:.0f} s", "; ".join(run.said)
                print(f"run {number + 1}, {case.name}: {found}{elsewhere}; {taken}; {said}", flush=True)


if __name__ == "__main__":
    main()
