"""Does a grid trial find delays that are put into a wheel, and what does it say where there are none?

    python -u benchmarks/grid_delays.py [--runs N] [--only CASE …]

The wheel is transformers as it is installed, whose layers take longer: each spins for a share of the processor time
since the last layer began, in all cells, in those of one engine, in one cell, or in none. 24 cells have every engine
and every family of the default grid. One line is printed per run, with what it found; its progress goes to the
standard error. Each run is appended to benchmarks/data/grid_delays.jsonl, from which benchmarks/detection.py makes a
table. A run takes some minutes.
"""

import argparse
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from perfsuite.catalog.registry import Catalog
from perfsuite.compare.pooling import Effect
from perfsuite.compare.rounds import Round
from perfsuite.environments.environments import with_releases
from perfsuite.records import codec
from perfsuite.records.formats import timestamp
from perfsuite.records.record import Record
from perfsuite.records.verdict import Status
from perfsuite.run.measuring import Measuring
from perfsuite.run.question import Question
from perfsuite.run.runner import Settings
from perfsuite.run.sides import Side
from perfsuite.show.text.grid_words import effect_text

DATA = Path(__file__).parent / "data" / "grid_delays.jsonl"
METRICS = ("step_time_seconds", "processor_time_seconds")
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
DELAY = """

import time as _time

_began = [0.0]
_call = GradientCheckpointingLayer.__call__


def _slower(self, *args, **kwargs):
    slow = self.__dict__.get("_slow")
    if slow is None:  # asked once: the question takes as long as what is looked for
        slow = self.__dict__["_slow"] = bool({where})
    now = _time.process_time()
    if _began[0] and slow:
        until = now + {share} * (now - _began[0])
        while _time.process_time() < until:
            pass
    _began[0] = _time.process_time()
    return _call(self, *args, **kwargs)


GradientCheckpointingLayer.__call__ = _slower
"""
INSTALLERS = ("INSTALLER", "REQUESTED", "direct_url.json")  # what they leave
STEP_SECONDS = 0.03  # of a step, until a run has measured it
SHARDED = 'any(hasattr(one, "ds_id") for one in self.parameters())'  # by ZeRO-3


class DelayRun(Record, frozen=True, kw_only=True):
    """One grid trial: whether it found the delay and named the cells that have it, which cells else it made red, how
    many pairs it needed, and what it said.
    """

    date: str
    case: str
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
                text += DELAY.format(where=case.where, share=case.share).encode()
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", nargs="*", choices=[case.name for case in CASES], default=[])
    arguments = parser.parse_args()
    cases = [case for case in CASES if not arguments.only or case.name in arguments.only]
    catalog = Catalog()
    hints = dict.fromkeys(CELLS, STEP_SECONDS)
    with tempfile.TemporaryDirectory() as folder:
        sides = {
            case: Side(case.name, catalog, with_releases([wheel(Path(folder), number, case)]))
            for number, case in enumerate(cases)
        }
    for number in range(arguments.runs):
        for case in cases:
            begin = time.monotonic()

            def tell(progress: Round, begin: float = begin) -> None:
                waiting, seconds = progress.waiting, time.monotonic() - begin
                print(f"after {seconds:.0f} s: pair {progress.number} of {waiting} cells", file=sys.stderr, flush=True)

            how = Measuring(catalog, Settings(), Path.cwd(), cells=len(CELLS))
            question = Question(how, Side("here", catalog), sides[case], CELLS, step_seconds=hints, tell=tell)
            question.compare_times()
            for cell, pairs in question.pairs.items():
                if "step_time_seconds" in pairs.launches[0][0].readings:
                    hints[cell] = float(pairs.launches[0][0].readings["step_time_seconds"].value)
            run = judged(case, question, time.monotonic() - begin)
            with DATA.open("a") as file:
                print(codec.encode_line(run), file=file)
            print(
                f"run {number + 1}, {case.name}: {'found' if run.found else 'not found' if case.share else 'no delay'}"
                f"{', red elsewhere: ' + ' '.join(run.elsewhere) if run.elsewhere else ''}; {run.pairs} pairs in "
                f"{run.seconds:.0f} s; " + "; ".join(run.said),
                flush=True,
            )


if __name__ == "__main__":
    main()
