"""The questions of people who ran out of memory, answered by prediction. Writes docs/memory_seeds.md.

    python benchmarks/memory_seeds.py                    # everything: half an hour of a core
    python benchmarks/memory_seeds.py "T5-XXL on"        # the sections whose titles begin so; the others stay

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

from perfsuite.catalog.cell import Cell, parse_cell
from perfsuite.catalog.definitions import Cut, Model, Workload
from perfsuite.catalog.registry import Catalog
from perfsuite.features.predict.memory_table import headroom
from perfsuite.features.predict.prediction import Prediction
from perfsuite.features.predict.traced_memory import beside, predict
from perfsuite.records.codec import write_bytes

OUT = Path(__file__).parents[1] / "docs" / "memory_seeds.md"
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
HEAD = """# What people asked

Predicted, not measured. Written by `python benchmarks/memory_seeds.py`. A cell needs the smallest capacity in which its
two traced steps find room, and what the GPU holds in addition to all tensors.
"""
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
EMULATED = OUT.with_name("memory_emulated.jsonl")
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


def both(one: Prediction) -> float:
    """GB of two GPUs under torch.nn.DataParallel: one has all of the training, the other what a replica needs."""
    states = one.parts.get("optimizer_state", 0) + one.parts.get("master_parameters", 0)
    return (2 * one.needed_bytes - states) / GB


def say(cells: Sequence[Cell]) -> Iterator[tuple[Cell, Prediction]]:
    """Predictions of cells with unpadded batches, as a single sample per step is."""
    yield from zip(cells, predict(cells, CATALOG, processes=2, padded=False), strict=True)


def t5_base() -> Iterator[str]:
    """Find the length, then predict every row at it."""
    yield "The note names neither the length of its samples nor how both GPUs were used. Started by hand, its Trainer"
    yield "takes torch.nn.DataParallel. One of the GPUs has less than 27 GB, so this page takes 27 GB for the sum of"
    yield "both. The second GPU has a replica's parameters, activations and gradients, and no optimizer state. It is"
    yield "not traced. The sum of both is twice the first, less the optimizer's state."
    yield ""
    yield "| length | one GPU, GB | both, GB |"
    yield "|---|---|---|"
    off, alone = {}, {}
    for length in LENGTHS:
        cell = parse_cell(f"t5_base-single+bf16+eager-rtx3090_x1-s{length}", CATALOG)
        ((_, one),) = say([cell])
        alone[length] = one.needed_bytes / GB
        off[length] = abs(one.needed_bytes / GB - ASKED_SINGLE) + abs(both(one) - ASKED_BOTH)
        yield f"| {length} | {one.needed_bytes / GB:.1f} | {both(one):.1f} |"
    length = min(off, key=off.__getitem__)
    yield ""
    yield (
        f"The note reports {ASKED_SINGLE} GB on one GPU and {ASKED_BOTH} GB on two. Samples of {length} tokens come "
        "nearest, and no length gives both. So it is 27 GB and not 4 because samples are long: attention keeps its "
        "scores of all pairs of tokens. At that length:"
    )
    yield ""
    yield "| tried | reported, GB | both, GB | off | one GPU, GB | activations at the peak, GB |"
    yield "|---|---|---|---|---|---|"
    cells = [parse_cell(f"t5_base-{strategy}-rtx3090_x1-s{length}", CATALOG) for _, strategy, _ in ROWS]
    for (title, _, told), (_, one) in zip(ROWS, say(cells), strict=True):
        kept = one.parts.get("activations", 0) / GB
        off_by = f"{100 * (both(one) / told - 1):+.0f} %"
        yield f"| {title} | {told} | {both(one):.1f} | {off_by} | {one.needed_bytes / GB:.1f} | {kept:.1f} |"
    yield from spread(length, alone[length])


def spread(length: int, alone: float) -> Iterator[str]:
    """What `model.parallelize()` needed: device_map, which no trace knows, as emulated GPUs measured it. One GPU needs
    ``alone`` GB.
    """
    cell = parse_cell(SPREAD.format(length), CATALOG)
    lines = {line["cell"]: line for line in map(json.loads, EMULATED.read_text(encoding="utf-8").splitlines())}
    yield ""
    if cell.id not in lines:
        yield f"`model.parallelize()`: `python benchmarks/memory_emulated.py` has not measured {cell.id} yet."
        return
    outside = sum(beside(cell).values())
    each = [(size + outside) / GB for size in lines[cell.id]["devices"]]
    more, reported = (100 * (both / one - 1) for both, one in ((sum(each), alone), (ASKED_SPREAD, ASKED_SINGLE)))
    yield (
        f"`model.parallelize()` needed {ASKED_SPREAD:.0f} GB, {reported:.0f} % more than one GPU. transformers has "
        f"removed it, and `device_map` spreads the layers today. {cell.id} needs "
        f"{' and '.join(f'{one:.1f}' for one in each)} GB on the two GPUs, as emulated GPUs measured it: "
        f"{sum(each):.1f} GB together, {more:.0f} % more than one GPU. One GPU works at a time, so its step takes at "
        "least as long as on one GPU. The note has 28 s for it and 68 s on one GPU. To divide the layers does not "
        "explain that."
    )


def table(cells: Sequence[Cell]) -> Iterator[str]:
    """Which of the cells fit."""
    yield "| cell | needs, GiB | left, GiB | on the host, GiB per node | |"
    yield "|---|---|---|---|---|"
    for cell, one in say(cells):
        yield row(cell, one)


def row(cell: Cell, one: Prediction) -> str:
    """A line of a table."""
    if one.outcome == "unsupported":
        return f"| {cell.id} | | | | {one.reason} |"
    left = headroom(one) or 0
    verdict = "fits" if left >= 0 else "out of memory"
    host = f"{one.host_bytes * cell.hardware.ranks / GIB:.0f}" if one.host_bytes else ""
    return f"| {cell.id} | {one.needed_bytes / GIB:.1f} | {left / GIB:.1f} | {host} | {verdict} |"


def bisect(cells: Sequence[Cell]) -> tuple[list[str], Cell | None]:
    """The first cell that fits, in decreasing order of need, and a table of those that were tried."""
    low, high = -1, len(cells)
    tried: dict[int, str] = {}
    while high - low > 1:
        middle = (low + high) // 2
        ((cell, one),) = say([cells[middle]])
        tried[middle] = row(cell, one)
        print(tried[middle], flush=True)
        low, high = (low, middle) if one.outcome == "fits" else (middle, high)
    head = ["| cell | needs, GiB | left, GiB | on the host, GiB per node | |", "|---|---|---|---|---|"]
    return head + [tried[number] for number in sorted(tried)], cells[high] if high < len(cells) else None


def t5_xxl() -> Iterator[str]:
    """Every strategy alone, and those that shard on two to four."""
    several = [f"t5_11b-{one}-a100_80g_x{ranks}" for ranks in (2, 3, 4) for one in XXL_SHARDED]
    alone = [f"t5_11b-{one}-a100_80g_x1" for one in XXL_ALONE]
    yield from table([parse_cell(one, CATALOG) for one in alone + several])


def zero_nodes() -> Iterator[str]:
    """A trace takes minutes, so one says about how many there must be, by closed forms; that many and one less are then
    traced.
    """
    yield "16 bytes of state per parameter (2 + 2 + 12). Micro-batch 1, 1,024 tokens, every layer checkpointed."
    yield ""
    yield "| cell | needs, GiB | left, GiB | on the host, GiB per node | |"
    yield "|---|---|---|---|---|"
    ((cell, one),) = say([parse_cell(GPT3.format(PROBED_NODES), CATALOG)])
    yield row(cell, one)
    state = sum(one.theory.values()) * PROBED_NODES
    rest = one.needed_bytes - state / PROBED_NODES
    if rest > V100_BYTES:
        yield ""
        yield f"**{rest / GIB:.1f} GiB are no state, more than a V100 has: ZeRO-3 alone needs another device.**"
        return
    about = math.ceil(state / (V100_BYTES - rest))
    lines, fits = bisect([parse_cell(GPT3.format(nodes), CATALOG) for nodes in range(about - 2, about + 3)])
    yield from lines[2:]
    yield ""
    yield f"{rest / GIB:.1f} GiB of the first are no state: activations, gathered layers, buckets, what the allocator"
    yield f"loses, CUDA's context and NCCL. The state alone would fit on {math.ceil(state / V100_BYTES)} nodes."
    nodes = f"{fits.hardware.nodes} nodes ({4 * fits.hardware.nodes} GPUs)" if fits else f"more than {about + 2} nodes"
    yield f"**ZeRO-3 needs {nodes}.**"


def pipeline_nodes() -> Iterator[str]:
    """By bisection over the stages."""
    yield (
        "Tensor parallel within a node, pipeline (1F1B) between nodes, a micro-batch per stage. Stages have equally "
        "many layers; the model is Llama's block with GPT-3's dimensions and as many weights, in bf16 (why: "
        "benchmarks/memory_seeds.py). The fullest stage counts. Micro-batch 1, 1,024 tokens, every layer checkpointed."
    )
    yield ""
    strategy = "pp_1f1b+bf16+ckpt+tp4+acc{0}-v100_32g_x4n{0}"
    lines, fits = bisect([parse_cell(f"gpt3_gated-{strategy.format(stages)}-b1-s1024", CATALOG) for stages in STAGES])
    yield from lines
    yield ""
    yield f"**Tensor and pipeline parallel: {fits.hardware.nodes if fits else 'more than 96'} nodes.**"


def largest_on_a_node() -> Iterator[str]:
    """By bisection over the layers of a model of fixed width, and Megatron's sizes with offload."""
    cells = [parse_cell(f"gpt_l{layers}-zero3+fp16+ckpt-v100_32g_x4-b1-s1024", CATALOG) for layers in LAYERS]
    lines, fits = bisect(cells[::-1])
    yield from lines
    if fits:
        yield ""
        yield (
            f"**ZeRO-3 alone: {fits.model.config['n_layer']} layers of {WIDTH}, "
            f"{fits.model.parameters / 10**9:.2f} billion parameters.** With offload the host's memory decides:"
        )
    yield ""
    cells = [parse_cell(f"{name}-zero3+fp16+ckpt+offload-v100_32g_x4-b1-s1024", CATALOG) for name in ONE_NODE]
    yield from table(cells)


def main() -> int:
    """Answer everything, or the given sections."""
    large = [parse_cell(f"t5_large-{one}-rtx3090_x2", CATALOG) for one in LARGE]
    large += [parse_cell(f"t5_large-{one}-a6000_x4", CATALOG) for one in LARGE[:2]]
    large += [parse_cell("t5_large-single+bf16-rtx3090_x1", CATALOG)]
    sections = {
        "t5-base on two RTX 3090: where 27 GB come from": t5_base(),
        "t5-large on two RTX 3090 and four A6000": table(large),
        "T5-XXL on one to four A100 of 80 GB": t5_xxl(),
        "The largest GPT on one node of four V100 of 32 GB": largest_on_a_node(),
        "GPT-3 175B under ZeRO-3 on nodes of four V100 of 32 GB": zero_nodes(),
        "GPT-3 175B under tensor and pipeline parallelism on the same nodes": pipeline_nodes(),
    }
    asked = tuple(sys.argv[1:])
    page = dict(part.split("\n\n", 1) for part in OUT.read_text().split("\n## ")[1:]) if asked else {}
    for title, answer in sections.items():
        if not asked or title.startswith(asked):
            page[title] = "\n".join([*answer, ""])
            print(f"{title}\n\n{page[title]}", flush=True)
        text = [HEAD, *(f"## {one}\n\n{page[one].rstrip()}\n" for one in sections if one in page)]
        write_bytes(OUT, "\n".join(text).encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
