"""The questions of people who ran out of memory, answered by prediction. Writes docs/memory_seeds.md.

    python benchmarks/memory_seeds.py

t5        Seq2SeqTrainer on two RTX 3090, micro-batch 1, bf16: 250M parameters, 4 GB expected, 27 GB used. Neither the
          length of the samples nor how the two GPUs were used is told. 27 GB are more than one of them has, so they are
          the sum of both, which torch.nn.DataParallel uses where a script is started by hand; its second GPU has the
          parameters, a sample's activations and the replica's gradients, and no optimizer.
t5_11b    T5-XXL on one to four A100 of 80 GB.
gpt3_175b the fewest nodes of four V100 of 32 GB under ZeRO-3, and the largest model on one node.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from perfsuite.catalog.registry import Catalog
from perfsuite.cell import Cell, parse_cell
from perfsuite.memory.predict import predict
from perfsuite.records import Prediction, write_bytes
from perfsuite.report.memory import headroom, needed

OUT = Path(__file__).parents[1] / "docs" / "memory_seeds.md"
GB = 10**9
CATALOG = Catalog()
LENGTHS = (512, 1024, 2048, 2560, 3072)
ASKED_SINGLE, ASKED_BOTH = 17, 27  # GB, of the baseline on one GPU and on two
ROWS = (  # what was tried on two GPUs, and GB that were told
    ("baseline", "single+bf16+eager", 27.0),
    ("gradient accumulation 8", "single+bf16+eager+acc8", 27.0),
    ("Adafactor", "single+bf16+adafactor+eager", 27.0),
    ("gradient checkpointing", "single+bf16+ckpt+eager", 16.5),
    ("fp16", "single+fp16+eager", 27.0),
    ("fp32", "single+eager", 36.0),
    ("fused AdamW", "single+bf16+adamw_fused+eager", 27.0),
)
LARGE = ("ddp+bf16", "ddp+bf16+ckpt", "zero2+bf16", "zero3+bf16", "zero3+bf16+ckpt", "fsdp2+bf16", "fsdp2+bf16+ckpt")
XXL = ("single+bf16", "single+bf16+adafactor+ckpt", "single+bf16+lora")
XXL_SHARDED = ("zero2+bf16+ckpt", "zero3+bf16+ckpt", "fsdp2+bf16+ckpt")
NODES = (16, 24, 32, 40, 48, 64, 96)
ONE_NODE = ("gpt_1b7", "gpt_3b6", "gpt_7b5", "gpt_18b")


def both(one: Prediction) -> float:
    """GB of two GPUs under torch.nn.DataParallel: one has all of the training, the other what a replica needs."""
    states = one.parts.get("optimizer_state", 0) + one.parts.get("master_parameters", 0)
    return (2 * needed(one) - states) / GB


def say(cells: Sequence[Cell]) -> Iterator[tuple[Cell, Prediction]]:
    """Predictions of cells with unpadded batches, as a single sample per step is."""
    yield from zip(cells, predict(cells, CATALOG, processes=2, padded=False), strict=True)


def t5_base() -> Iterator[str]:
    """Find the length, then predict every row at it."""
    yield "| length | one GPU, GB | both, GB |"
    yield "|---|---|---|"
    off = {}
    for length in LENGTHS:
        cell = parse_cell(f"t5_base-single+bf16+eager-rtx3090_x1-s{length}", CATALOG)
        ((_, one),) = say([cell])
        off[length] = abs(needed(one) / GB - ASKED_SINGLE) + abs(both(one) - ASKED_BOTH)
        yield f"| {length} | {needed(one) / GB:.1f} | {both(one):.1f} |"
    length = min(off, key=off.__getitem__)
    yield ""
    yield (
        f"Told were {ASKED_SINGLE} GB on one GPU and {ASKED_BOTH} GB on two: samples of {length} tokens come nearest. "
        "At that length:"
    )
    yield ""
    yield "| tried | told, GB | both, GB | one GPU, GB | activations at the peak, GB |"
    yield "|---|---|---|---|---|"
    cells = [parse_cell(f"t5_base-{strategy}-rtx3090_x1-s{length}", CATALOG) for _, strategy, _ in ROWS]
    for (title, _, told), (_, one) in zip(ROWS, say(cells), strict=True):
        kept = one.parts.get("activations", 0) / GB
        yield f"| {title} | {told} | {both(one):.1f} | {needed(one) / GB:.1f} | {kept:.1f} |"


def table(cells: Sequence[Cell]) -> Iterator[str]:
    """Which of the cells fit."""
    yield "| cell | needs, GiB | left, GiB | |"
    yield "|---|---|---|---|"
    for cell, one in say(cells):
        if one.outcome == "unsupported":
            yield f"| {cell.id} | | | {one.reason} |"
            continue
        left = headroom(one) or 0
        verdict = "fits" if left >= 0 else "out of memory"
        yield f"| {cell.id} | {needed(one) / 2**30:.1f} | {left / 2**30:.1f} | {verdict} |"


def fewest_nodes() -> Iterator[str]:
    """By bisection over the nodes: with more of them every share is smaller."""
    nodes = list(NODES)
    low, high = -1, len(nodes) - 1
    tried: dict[int, Prediction] = {}
    while high - low > 1:
        middle = (low + high) // 2
        cell = parse_cell(f"gpt3_175b-zero3+fp16+ckpt-v100_32g_x4n{nodes[middle]}-s1024", CATALOG)
        ((_, one),) = say([cell])
        tried[nodes[middle]] = one
        low, high = (low, middle) if one.outcome == "fits" else (middle, high)
    yield "| nodes | needs, GiB | |"
    yield "|---|---|---|"
    for count, one in sorted(tried.items()):
        yield f"| {count} | {needed(one) / 2**30:.1f} | {one.outcome} |"
    yield ""
    yield f"Of the counts that were tried, {nodes[high]} nodes of four are the fewest (1,024 tokens, fp16, ckpt)."


def main() -> int:
    """Answer everything."""
    lines = ["# What people asked", "", "Predicted, not measured; written by `python benchmarks/memory_seeds.py`.", ""]
    large = [parse_cell(f"t5_large-{one}-rtx3090_x2", CATALOG) for one in LARGE]
    large += [parse_cell(f"t5_large-{one}-a6000_x4", CATALOG) for one in LARGE[:2]]
    large += [parse_cell("t5_large-single+bf16-rtx3090_x1", CATALOG)]
    xxl = [parse_cell(f"t5_11b-{one}-a100_80g_x1", CATALOG) for one in XXL]
    xxl += [parse_cell(f"t5_11b-{one}-a100_80g_x{ranks}", CATALOG) for ranks in (2, 4) for one in XXL_SHARDED]
    one_node = [parse_cell(f"{name}-zero3+fp16+ckpt-v100_32g_x4-b1-s1024", CATALOG) for name in ONE_NODE]
    for title, answer in (
        ("t5-base on two RTX 3090: where 27 GB come from", t5_base()),
        ("t5-large on two RTX 3090 and four A6000", table(large)),
        ("T5-XXL on A100 of 80 GB", table(xxl)),
        ("The largest model on one node of four V100", table(one_node)),
        ("GPT-3 175B under ZeRO-3 on nodes of four V100", fewest_nodes()),
    ):
        lines += [f"## {title}", "", *answer, ""]
        print("\n".join(lines[-12:]), flush=True)
        write_bytes(OUT, "\n".join(lines).encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
