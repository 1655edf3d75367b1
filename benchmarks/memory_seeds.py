"""The questions of people who ran out of memory, answered by prediction. Writes docs/data/asked/*.csv.

    python benchmarks/memory_seeds.py                    # everything: half an hour of a core
    python benchmarks/memory_seeds.py t5_xxl             # these tables

t5        Seq2SeqTrainer on two RTX 3090, micro-batch 1, bf16: 250M parameters, 4 GB expected, 27 GB used. The length
          of the samples and the use of the two GPUs are not reported. 27 GB are more than one of them has, so they are
          the sum of both, which torch.nn.DataParallel uses if a script is started by hand; its second GPU has the
          parameters, a sample's activations and the replica's gradients, and no optimizer.
t5_11b    T5-XXL on one to four A100 of 80 GB.
gpt3_175b the fewest nodes of four V100 of 32 GB under ZeRO-3 and under tensor and pipeline parallelism, and the largest
          model on one node. transformers has no plan by which GPT-2's class is divided over tensor-parallel ranks, so
          there a decoder of GPT-3's width, depth and heads takes its place that has one (GATED below). torch's
          pipelines have no loss scale, so fp16 is impossible, and a V100 only emulates bf16. Both take as many bytes
          but in attention: of bf16 torch has nothing but the math kernel there, which keeps the scores of all tokens.
          fp16 would need less by these.
"""

import dataclasses
import json
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from result_tables import write_table

from perfsuite.catalog.cell import Cell, parse_cell
from perfsuite.catalog.definitions import Cut, Model, Workload
from perfsuite.catalog.registry import Catalog
from perfsuite.features.predict.memory_table import headroom
from perfsuite.features.predict.prediction import Prediction
from perfsuite.features.predict.trace_summary import beside
from perfsuite.features.predict.traced_memory import predict

GB, GIB = 10**9, 2**30
GATED = Model(  # Llama's block with GPT-3's dimensions: 3 x 2/3 x 4h wide where GPT-3 has 2 x 4h, so as many weights
    name="gpt3_gated",
    family="llama",
    task="causal_lm",
    source="arXiv 2005.14165, table 2.1; the feed-forward of arXiv 2002.05202, section 2",
    workload=Workload(micro_batch=1, sequence_length=1024),
    parameters=174_566_682_624,
    config_class="LlamaConfig",
    model_class="LlamaForCausalLM",
    config={
        "vocab_size": 50304,  # 50,257 rounded up, as Megatron does to divide it
        "hidden_size": 12288,
        "num_hidden_layers": 96,
        "num_attention_heads": 96,
        "num_key_value_heads": 96,
        "intermediate_size": 32768,
        "tie_word_embeddings": True,
        "use_cache": False,
    },
    vocabulary=50304,
    first_token=0,
    divisible={"heads": 96, "feed-forward features": 32768, "tokens of the vocabulary": 50304},
    cut=Cut(
        body="model",
        layers="model.layers",
        depth=96,
        first=("model.embed_tokens",),
        last=("model.norm", "lm_head"),
        tied=("model.embed_tokens.weight", "lm_head.weight"),
    ),
)
WIDTH = 4096  # of the models for one node: gpt_7b5's, with other numbers of layers
LAYERS = range(20, 36)


def deep(layers: int) -> Model:
    """gpt_7b5 with so many layers."""
    base = Catalog().get("model", "gpt_7b5")
    more = (layers - base.config["n_layer"]) * (12 * WIDTH**2 + 13 * WIDTH)
    config = base.config | {"n_layer": layers}
    return dataclasses.replace(
        base, name=f"gpt_l{layers}", parameters=base.parameters + more, config=config, cut=None, source="perfsuite"
    )


CATALOG = Catalog((), (GATED, *map(deep, LAYERS)))
LENGTHS = (512, 1024, 2048, 2560, 2688, 2816, 2944, 3072)
ASKED_SINGLE, ASKED_BOTH = 17, 27  # GB, of the baseline on one GPU and on two
ROWS = (  # the tried strategies on two GPUs, and the reported GB
    ("baseline", "single+bf16+eager", 27.0),
    ("gradient accumulation 8", "single+bf16+eager+acc8", 27.0),
    ("Adafactor", "single+bf16+adafactor+eager", 27.0),
    ("gradient checkpointing", "single+bf16+ckpt+eager", 16.5),
    ("fp16", "single+fp16+eager", 27.0),
    ("fp32", "single+eager", 36.0),
    ("fused AdamW", "single+bf16+adamw_fused+eager", 27.0),
)
SPREAD, ASKED_SPREAD = "t5_base-device_map+bf16+eager-rtx3090_x2-s{}", 20.0  # model.parallelize(), GB
EMULATED = Path(__file__).parents[1] / "docs" / "memory_emulated.jsonl"
LARGE = ("ddp+bf16", "ddp+bf16+ckpt", "zero2+bf16", "zero3+bf16", "zero3+bf16+ckpt", "fsdp2+bf16", "fsdp2+bf16+ckpt")
XXL_ALONE = (
    "single+bf16", "single+bf16+ckpt", "single+bf16+adafactor+ckpt", "single+pure_bf16+ckpt", "single+bf16+lora+ckpt",
    "zero2+bf16+ckpt+offload_optimizer", "zero3+bf16+ckpt+offload",
)  # fmt: skip
XXL_SHARDED = ("zero2+bf16+ckpt", "zero3+bf16+ckpt", "fsdp2+bf16")
PROBED_NODES = 28
GPT3 = "gpt3_175b-zero3+fp16+ckpt-v100_32g_x4n{}-b1-s1024"
V100_BYTES = CATALOG.get("device", "v100_32g").usable_bytes
STAGES = (24, 32, 48, 96)  # of 96 layers; four tensor-parallel ranks of a node share one
ONE_NODE = ("gpt_7b5", "gpt_18b", "gpt_39b")
FITS = ("cell", "needs, GiB", "left, GiB", "on the host, GiB per node", "answer")
BY_LENGTH = ("length", "one GPU, GB", "both, GB")
TRIED = ("tried", "reported, GB", "both, GB", "off", "one GPU, GB", "activations at the peak, GB")
Line = tuple[object, ...]


def both(one: Prediction) -> float:
    """GB of two GPUs under torch.nn.DataParallel: one has all of the training, the other what a replica needs."""
    states = one.parts.get("optimizer_state", 0) + one.parts.get("master_parameters", 0)
    return (2 * one.needed_bytes - states) / GB


def say(cells: Sequence[Cell]) -> Iterator[tuple[Cell, Prediction]]:
    """Predictions of cells with unpadded batches, as a single sample per step is."""
    yield from zip(cells, predict(cells, CATALOG, processes=2, padded=False), strict=True)


def t5_base() -> None:
    """Find the length, then predict every row at it."""
    off, lengths = {}, []
    for length in LENGTHS:
        cell = parse_cell(f"t5_base-single+bf16+eager-rtx3090_x1-s{length}", CATALOG)
        ((_, one),) = say([cell])
        off[length] = abs(one.needed_bytes / GB - ASKED_SINGLE) + abs(both(one) - ASKED_BOTH)
        lengths.append((length, f"{one.needed_bytes / GB:.1f}", f"{both(one):.1f}"))
    write_table("asked/t5_length", BY_LENGTH, lengths)
    length = min(off, key=off.__getitem__)
    cells = [parse_cell(f"t5_base-{strategy}-rtx3090_x1-s{length}", CATALOG) for _, strategy, _ in ROWS]
    tried = []
    for (title, _, told), (_, one) in zip(ROWS, say(cells), strict=True):
        activations = one.parts.get("activations", 0) / GB
        off_by = f"{100 * (both(one) / told - 1):+.0f} %"
        tried.append((title, told, f"{both(one):.1f}", off_by, f"{one.needed_bytes / GB:.1f}", f"{activations:.1f}"))
    write_table("asked/t5_tried", TRIED, [*tried, *spread(length)])


def spread(length: int) -> Iterator[Line]:
    """What `model.parallelize()` needed: device_map, which no trace knows, as emulated GPUs measured it."""
    cell = parse_cell(SPREAD.format(length), CATALOG)
    lines = {line["cell"]: line for line in map(json.loads, EMULATED.read_text(encoding="utf-8").splitlines())}
    if cell.id in lines:
        outside = sum(beside(cell).values())
        each = [(size + outside) / GB for size in lines[cell.id]["devices"]]
        off = f"{100 * (sum(each) / ASKED_SPREAD - 1):+.0f} %"
        fullest = f"{max(each):.1f}"
        yield "parallelize(), today device_map (emulated)", ASKED_SPREAD, f"{sum(each):.1f}", off, fullest, ""


def table(cells: Sequence[Cell]) -> Iterator[Line]:
    """Which of the cells fit."""
    for cell, one in say(cells):
        yield row(cell, one)


def row(cell: Cell, one: Prediction) -> Line:
    """A line of a table."""
    if one.outcome == "unsupported":
        return cell.id, "", "", "", one.reason
    left = headroom(one) or 0
    verdict = "fits" if left >= 0 else "out of memory"
    host = f"{one.host_bytes * cell.hardware.ranks / GIB:.0f}" if one.host_bytes else ""
    return cell.id, f"{one.needed_bytes / GIB:.1f}", f"{left / GIB:.1f}", host, verdict


def bisect(cells: Sequence[Cell]) -> list[Line]:
    """The first cell that fits, in decreasing order of need: the lines of those that were tried."""
    low, high = -1, len(cells)
    tried: dict[int, Line] = {}
    while high - low > 1:
        middle = (low + high) // 2
        ((cell, one),) = say([cells[middle]])
        tried[middle] = row(cell, one)
        print(*tried[middle], flush=True)
        low, high = (low, middle) if one.outcome == "fits" else (middle, high)
    return [tried[number] for number in sorted(tried)]


def t5_xxl() -> Iterator[Line]:
    """Every strategy alone, and those that shard on two to four."""
    several = [f"t5_11b-{one}-a100_80g_x{ranks}" for ranks in (2, 3, 4) for one in XXL_SHARDED]
    alone = [f"t5_11b-{one}-a100_80g_x1" for one in XXL_ALONE]
    yield from table([parse_cell(one, CATALOG) for one in alone + several])


def zero_nodes() -> Iterator[Line]:
    """A trace takes minutes, so one says about how many there must be, by closed forms; that many and one less are then
    traced.
    """
    ((cell, one),) = say([parse_cell(GPT3.format(PROBED_NODES), CATALOG)])
    yield row(cell, one)
    state = sum(one.theory.values()) * PROBED_NODES
    rest = one.needed_bytes - state / PROBED_NODES
    if rest < V100_BYTES:
        about = math.ceil(state / (V100_BYTES - rest))
        yield from bisect([parse_cell(GPT3.format(nodes), CATALOG) for nodes in range(about - 2, about + 3)])


def pipeline_nodes() -> list[Line]:
    """By bisection over the stages."""
    strategy = "pp_1f1b+bf16+ckpt+tp4+acc{0}-v100_32g_x4n{0}"
    return bisect([parse_cell(f"gpt3_gated-{strategy.format(stages)}-b1-s1024", CATALOG) for stages in STAGES])


def largest_on_a_node() -> Iterator[Line]:
    """By bisection over the layers of a model of fixed width, and Megatron's sizes with offload."""
    cells = [parse_cell(f"gpt_l{layers}-zero3+fp16+ckpt-v100_32g_x4-b1-s1024", CATALOG) for layers in LAYERS]
    yield from bisect(cells[::-1])
    cells = [parse_cell(f"{name}-zero3+fp16+ckpt+offload-v100_32g_x4-b1-s1024", CATALOG) for name in ONE_NODE]
    yield from table(cells)


def t5_large() -> Iterator[Line]:
    """On two RTX 3090, four A6000, and one."""
    names = [f"{one}-rtx3090_x2" for one in LARGE] + [f"{one}-a6000_x4" for one in LARGE[:2]]
    yield from table([parse_cell(f"t5_large-{one}", CATALOG) for one in (*names, "single+bf16-rtx3090_x1")])


def main() -> int:
    """Answer everything, or the given tables."""
    tables = {
        "t5_large": t5_large,
        "t5_xxl": t5_xxl,
        "largest_on_a_node": largest_on_a_node,
        "zero_nodes": zero_nodes,
        "pipeline_nodes": pipeline_nodes,
    }
    asked = sys.argv[1:] or ["t5_base", *tables]
    if "t5_base" in asked:
        t5_base()
    for name, lines in tables.items():
        if name in asked:
            write_table(f"asked/{name}", FITS, list(lines()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
