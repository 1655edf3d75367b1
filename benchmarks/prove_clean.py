"""Is a right program called wrong by perfsuite prove? Writes docs/data/prove/clean.csv, a row for each program.

    python benchmarks/prove_clean.py             # what the table does not have; an hour for all on two cores
    python benchmarks/prove_clean.py quiet_mlp   # these anew

The programs are those of tests/support/right, as different people write them; the trainings by eight ways to train,
with their options; the small scripts with causes of slowness; and workloads of benchmarks/regressions/. All relations
are tried. A program without a row has failed, or could be tried in no relation.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from result_tables import read_table, write_table

from perfsuite.compare.standing_out import Symptom

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests" / folder) for folder in ("support", "features/prove")]
TABLE = "prove/clean"
COLUMNS = ["program", "holds", "broken", "not tried", "broken relations"]
LONGEST = 400  # seconds of a program
RIGHT = ROOT / "tests" / "support" / "right"
RANKS = ("torchrun", "--nproc-per-node=2")
OPTIONS = {  # of the trainings, besides those that their tests give
    "gpt_by_hand": ("--bf16", "--compile", "--accumulate 1", "--accumulate 4"),
    "gpt2_by_ddp": ("--gradient_accumulation_steps 2",),
    "llama_by_fsdp": ("--fp32",),
    "gpt2_by_zero": ("--stage 1", "--stage 3", "--gradient_accumulation_steps 1"),
}
WORKLOADS = (
    "compiled_forward.py phi3",
    "dataset_streams.py grouped",
    "deepspeed_features.py cosine",
    "deepspeed_features.py warmup",
    "peft_adapters.py embeddings",
    "sentence_embeddings.py MatryoshkaLoss",
    "trl_preferences.py DPO",
    "trl_sft.py dense",
)


@dataclass(frozen=True)
class Program:
    """Its name, the command, and the file that it needs as train.py."""

    name: str
    words: tuple[str, ...]
    text: str = ""


def programs() -> Iterator[Program]:
    """All of them."""
    from scripts_with_causes import scripts
    from test_framework_faults import ALL, TRAININGS

    for path in sorted(RIGHT.glob("*.py")):
        text = path.read_text()
        launcher: tuple[str, ...] = RANKS if "init_process_group" in text else ("python",)
        yield Program(path.stem, (*launcher, "train.py"), text)
    for name, launcher, words in ALL:
        for more in ("", *OPTIONS.get(name, ())):
            command = (*launcher, "train.py", *words.split(), *more.split())  # the last of an option counts
            yield Program(f"{name} {more}".strip(), command, (TRAININGS / f"{name}.py").read_text())
    right = {name: one for name, one in scripts().items() if one.symptom is not Symptom.GRADIENTS_SUMMED}
    for name, one in right.items():
        yield Program(name, (*(RANKS if one.ranks > 1 else ("python",)), "train.py"), one.text)
    for words in WORKLOADS:
        file, *others = shlex.split(words)
        yield Program(words, ("python", file, *others), (ROOT / "benchmarks" / "regressions" / file).read_text())


def tried(program: Program) -> dict[str, str]:
    """The outcome of each relation; none if the program took too long."""
    with TemporaryDirectory() as folder:
        at = next(word for word in program.words if word.endswith(".py"))
        Path(folder, at).write_text(program.text)
        result = Path(folder, "result.json")
        command = [sys.executable, "-m", "perfsuite.cli.main", "prove", "--json", str(result), "--"]
        process = subprocess.Popen(
            [*command, *program.words], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ
        )
        try:
            process.wait(LONGEST)
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait()
        if not result.exists():
            return {}
        relations = json.loads(result.read_text())["relations"]
    return {one["relation"]: one["outcome"] for one in relations}


def main() -> None:
    """Try the programs, and write the table after each."""
    wanted = sys.argv[1:]
    known = {
        row["program"]: [row[column] for column in COLUMNS] for row in read_table(TABLE) if row["program"] != "all"
    }
    for program in programs():
        if (program.name in known and program.name not in wanted) or (wanted and program.name not in wanted):
            continue
        if "lightning" in program.text and not shutil.which("fabric"):
            continue
        outcomes = tried(program)
        counts = [sum(one == what for one in outcomes.values()) for what in ("holds", "broken", "not tried")]
        print(program.name, *counts, flush=True)
        if counts[0] + counts[1]:
            broken = [name for name, one in outcomes.items() if one == "broken"]
            known[program.name] = [program.name, *map(str, counts), ", ".join(broken)]
        total = [str(sum(int(row[at]) for row in known.values())) for at in (1, 2, 3)]
        write_table(TABLE, COLUMNS, [*known.values(), ["all", *total, f"{len(known)} programs"]])


if __name__ == "__main__":
    main()
