"""Questions about time that people asked in five notes, answered by commands with their own, shortened output.

python benchmarks/time_seeds.py    # writes docs/data/asked/*.txt; the `fit` commands trace for some minutes
"""

import contextlib
import io
import re
import shlex
import sys
from collections.abc import Iterator

from result_tables import DATA, write_table
from time_rows import lines
from time_summary import relative
from time_tables import HERE, table
from time_validate import judge

from perfsuite.cli.main import main as perfsuite
from perfsuite.records.codec import write_bytes
from perfsuite.system.units import show_change

RATES = ("model", "TP", "PP", "DP", "GPUs", "micro-batch", "batch", "published", "predicted", "error")
FIT = "perfsuite fit bloom_560m_cls --hardware t4_x2 -s 128 --strategy zero2+fp16 zero3+fp16 fsdp2+fp16"
PLAN_BLOOM = "perfsuite plan bloom_{} --hardware t4_x2 --tokens 1e8 --batch {} -s 128 --top {}"
BY_OFFLOAD = " | grep -E 'memory|dp2 b8 zero'"
V100 = "perfsuite plan gpt3_175b --hardware v100_32g_x4n64 --tokens 300e9 --network "
T5 = "perfsuite plan t5_11b --hardware a100_80g_x{} --tokens 1e9 --batch {} -s 512 -t 32 --top 3"
TECHNIQUES = ("single", "single+bf16", "single+bf16+ckpt", "single+bf16+adafactor", "single+bf16+adamw8bit")
FIT_T5 = "perfsuite fit t5_base --hardware rtx3090_x1"
# By name: the command, and how many lines of its output are shown.
QUESTIONS = {
    "t5_large": ("perfsuite fit t5_large --hardware rtx3090_x2 --strategy single+bf16 single+bf16+ckpt ddp+bf16", 99),
    "t5_techniques": (f"{FIT_T5} -b 8 --strategy {' '.join(TECHNIQUES)}", 99),
    "t5_accumulation": (f"{FIT_T5} -b 2 --strategy single+bf16+acc4", 99),
    "bloom_560m_b1": (f"{FIT} -b 1", 99),
    "bloom_560m_b8": (f"{FIT} -b 8", 99),
    "bloom_560m_offload": (PLAN_BLOOM.format("560m", 16, 200) + BY_OFFLOAD, 99),
    "bloom_7b1": (PLAN_BLOOM.format("7b1", 16, 3), 99),
    **{f"t5_xxl_{ranks}": (T5.format(ranks, batch), 7) for ranks, batch in ((1, 32), (2, 32), (3, 33), (4, 32))},
    "gpt3_135gbit": (f"{V100}135Gbit/s --top 3", 99),
    "gpt3_400gbit": (f"{V100}400Gbit/s --top 3", 12),
    "gpt3_nodes": (f"{V100}400Gbit/s --seek nodes --top 1", 99),
    "largest_on_a_node": (
        "perfsuite plan gpt_530b --hardware v100_32g_x4 --tokens 300e9 --seek model --top 1",
        17,
    ),
}


def answered(command: str, count: int) -> str:
    """The command with its true output. A dotted line stands for what is left out."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        perfsuite(shlex.split(command.partition(" | ")[0])[1:])
    kept = re.compile(shlex.split(command.partition(" | grep -E ")[2] or "''")[0])
    shown = [line.rstrip() for line in printed.getvalue().strip().splitlines() if kept.search(line)]
    shown = without_costs(shown)
    return "\n".join([f"$ {command}", *shown[:count], *(["…"] if len(shown) > count else [])]) + "\n"


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


def rates() -> Iterator[tuple[str, ...]]:
    """The 1.7B to 1T models of arXiv 2104.04473, as one note copied them, with the predicted TFLOP/s per device."""
    path = HERE / "megatron_sc21.csv"
    for line, row in zip(lines(path), table("megatron_sc21"), strict=True):
        ratio = 1 / (1 + relative(judge(row)))
        published = float(line["tflops_per_gpu_hw"])
        names = ("model", "tp", "pp", "dp", "n_gpus", "micro_batch", "global_batch")
        yield (*(line[name] for name in names), f"{published:.0f}", f"{published * ratio:.0f}", show_change(1, ratio))


def main() -> int:
    """Write the outputs of all commands, or of those named, and the table of rates."""
    for name in sys.argv[1:] or QUESTIONS:
        write_bytes(DATA / "asked" / f"{name}.txt", answered(*QUESTIONS[name]).encode())
        print(name, flush=True)
    write_table("asked/gpt_rates", RATES, rates())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
