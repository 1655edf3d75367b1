"""Questions about time that people asked in five notes, answered by commands with their own, shortened output.

python benchmarks/time_seeds.py    # writes docs/time_seeds.md; the `fit` commands trace for some minutes
"""

import contextlib
import io
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from time_rows import lines
from time_summary import relative
from time_tables import HERE, table
from time_validate import judge

from perfsuite.cli.main import main as perfsuite
from perfsuite.records.codec import write_bytes
from perfsuite.system.units import show_change

OUT = Path(__file__).parents[1] / "docs" / "time_seeds.md"
HEAD = """# Time questions that people asked

Written by `python benchmarks/time_seeds.py`. The notes are those of
[memory questions that people asked](memory_seeds.md). Everything is predicted, and nothing was measured here. The
interval in parentheses is of 90 %. For `fit`, it is that of software without a fitted table: no published table has
steps of transformers' own layers. [How good the closed form is](time_published.md)
"""


@dataclass(frozen=True)
class Question:
    """A heading, the commands that answer it with how many lines of each to show, and what they say."""

    heading: str
    commands: tuple[tuple[str, int], ...]
    answer: str


FIT = "perfsuite fit bloom_560m_cls --hardware t4_x2 -s 128 --strategy zero2+fp16 zero3+fp16 fsdp2+fp16"
PLAN_BLOOM = "perfsuite plan bloom_{} --hardware t4_x2 --tokens 1e8 --batch {} -s 128 --top {}"
BY_OFFLOAD = " | grep -E 'memory|dp2 b8 zero'"
V100 = "perfsuite plan gpt3_175b --hardware v100_32g_x4n64 --tokens 300e9 --network "
T5 = "perfsuite plan t5_11b --hardware a100_80g_x{} --tokens 1e9 --batch {} -s 512 -t 32 --top 3"
TECHNIQUES = ("single", "single+bf16", "single+bf16+ckpt", "single+bf16+adafactor", "single+bf16+adamw8bit")
FIT_T5 = "perfsuite fit t5_base --hardware rtx3090_x1"
QUESTIONS = (
    Question(
        "T5-large on two RTX 3090: what is fast, and fits?",
        (
            (
                "perfsuite fit t5_large --hardware rtx3090_x2 --strategy single+bf16 single+bf16+ckpt ddp+bf16",
                99,
            ),
        ),
        "The second device adds throughput, and checkpointing costs some.",
    ),
    Question(
        "Accumulation, checkpointing, mixed precision, Adafactor, 8-bit Adam: what does each cost and save?",
        ((f"{FIT_T5} -b 8 --strategy {' '.join(TECHNIQUES)}", 99), (f"{FIT_T5} -b 2 --strategy single+bf16+acc4", 99)),
        "The note lists them without a result. Accumulation needs a quarter of the micro-batch for the same batch. "
        "Checkpointing computes every layer's forward again. Adafactor and 8-bit Adam save optimizer state. Their "
        "steps, and those in fp32, have no closed form here.",
    ),
    Question(
        "BLOOM-560m on two T4: ZeRO-2 or ZeRO-3, by batch? Offload? FSDP?",
        ((f"{FIT} -b 1", 99), (f"{FIT} -b 8", 99), (PLAN_BLOOM.format("560m", 16, 200) + BY_OFFLOAD, 99)),
        "The links are PCIe, so messages take about half of a step or more with one sample. ZeRO-2 takes a third "
        "longer than ZeRO-3 with one sample, and a quarter longer with eight. The intervals overlap, so a run may turn "
        "the order. ZeRO-2 takes as long with one sample as with eight: the host must launch as many kernels. ZeRO-3"
        " hides that in its gathers. FSDP is as fast: it reduces in fp32, so it sends more bytes, but in fewer "
        "messages. Offload of the optimizer makes a step of `plan` 1.3 times as long.",
    ),
    Question(
        "BLOOM-7b1 on two T4: does it train at all?",
        ((PLAN_BLOOM.format("7b1", 16, 3), 99),),
        "With the optimizer on the host. Half of the step waits for it.",
    ),
    Question(
        "T5-XXL on one to four A100: how long?",
        tuple((T5.format(ranks, batch), 6) for ranks, batch in ((1, 32), (2, 32), (3, 33), (4, 32))),
        "On fewer than three devices the optimizer must be on the host. From three on ZeRO-3 holds "
        "everything. The note's own times (21:38 to 10:26) do not say their model, lengths and steps, so they "
        "are no check.",
    ),
    Question(
        "GPT-3 175B on nodes of four V100: 135 or 400 Gbit/s?",
        ((f"{V100}135Gbit/s --top 3", 99), (f"{V100}400Gbit/s --top 3", 11)),
        "A pipeline is best with both. The faster network saves a few percent of the days: most of a step is "
        "computation. No constant was fitted on a V100; it borrows those of "
        "the A100.",
    ),
    Question(
        "GPT-3 175B: the fewest nodes, and the days?",
        ((f"{V100}400Gbit/s --min-nodes --top 1", 99),),
        "Megatron-LM needs 28 nodes. With `--stack deepspeed` four hold it with offload, but would train for years.",
    ),
    Question(
        "The largest model on one node of four V100?",
        (("perfsuite plan gpt_530b --hardware v100_32g_x4 --tokens 300e9 --max-model --top 1", 14),),
        "",
    ),
)


def answered(question: Question) -> Iterable[str]:
    """The question with the true output of its commands. A dotted line stands for what is left out."""
    yield f"## {question.heading}"
    if question.answer:
        yield question.answer
    for command, count in question.commands:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            perfsuite(shlex.split(command.partition(" | ")[0])[1:])
        kept = re.compile(shlex.split(command.partition(" | grep -E ")[2] or "''")[0])
        shown = [line.rstrip() for line in printed.getvalue().strip().splitlines() if kept.search(line)]
        shown = without_costs(shown)
        body = [f"$ {command}", *shown[:count], *(["…"] if len(shown) > count else [])]
        yield "```\n" + "\n".join(body) + "\n```"


def without_costs(shown: list[str]) -> list[str]:
    """``fit``'s table without its last column, which is prose."""
    head = next((line for line in shown if line.startswith("strategy ")), "")
    if "MFU" not in head:
        return shown
    width = head.index("MFU") + len("MFU") + 4
    at = shown.index(head)
    return [
        line[:width].rstrip() if number >= at and "-" not in line[:9] else line for number, line in enumerate(shown)
    ]


def users_table() -> Iterable[str]:
    """The 1.7B to 1T models of arXiv 2104.04473, as one note copied them, with the predicted TFLOP/s per device."""
    yield "## The models of 1.7B to 1T: which TP, PP and DP, and how many TFLOP/s?"
    yield (
        "The layouts and the published TFLOP/s per A100 are those of arXiv 2104.04473, table 1. No constant was fitted "
        "on them. The published numbers count recomputed FLOPs."
    )
    rows = ["| model | TP | PP | DP | GPUs | micro-batch | batch | published | predicted | error |", "|---" * 10 + "|"]
    path = HERE / "megatron_sc21.csv"
    for line, row in zip(lines(path), table("megatron_sc21"), strict=True):
        ratio = 1 / (1 + relative(judge(row)))
        published = float(line["tflops_per_gpu_hw"])
        names = ("model", "tp", "pp", "dp", "n_gpus", "micro_batch", "global_batch")
        told = [line[name] for name in names] + [f"{published:.0f}", f"{published * ratio:.0f}", show_change(1, ratio)]
        rows.append(f"| {' | '.join(told)} |".replace("%", " %"))
    yield "\n".join(rows)


def main() -> int:
    """Write the page."""
    parts = [HEAD.strip(), *users_table()]
    for question in QUESTIONS:
        parts += answered(question)
    write_bytes(OUT, ("\n\n".join(parts) + "\n").encode())
    print(f"{OUT} is written.")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
