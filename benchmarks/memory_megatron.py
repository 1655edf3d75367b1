"""One rank of Megatron's own models in their own layouts: memory per GPU, by trace.

Writes docs/data/memory/megatron*.csv.

    python benchmarks/memory_megatron.py           # all rows, up to a minute of a core per row
    python benchmarks/memory_megatron.py 1.7B 18B  # these; the others stay

Layouts and micro-batches are those of arXiv 2104.04473, table 1, which has no memory. It recomputes all activations, in
fp16. A stage has at most as many micro-batches in flight as there are stages, so a step has as many. The static memory
by theory is 18 bytes per parameter of the rank, as Megatron's documentation counts them without a distributed optimizer
(docs/source/api-guide/core/dist_optimizer.md). Exit code 1 if a rank's differs by more than MOST.

Activations next to it are those of arXiv 2205.05198, figures 1 and 7, as calculon-ai/calculon has read them off. The
authors counted them, and did not measure. Its other models have three chunks a rank, and ours two. SimuMax measured
peaks of Llama in Megatron-LM, which the engines here do not train: the planner's closed form is beside them.
"""

import sys
from collections.abc import Iterator

from result_tables import read_table, write_table
from time_choice import printed
from time_summary import percent

from perfsuite.catalog.cell import Cell, parse_cell
from perfsuite.catalog.registry import Catalog
from perfsuite.features.predict.memory_table import headroom
from perfsuite.features.predict.prediction import Prediction
from perfsuite.features.predict.traced_memory import predict

GIB = 2**30
BYTES = 18  # per parameter: 2 of itself, 4 of its gradient, 4 of its master and 8 of Adam's moments
MOST = 0.003
STATIC = ("parameters", "gradients", "master_parameters", "optimizer_state")
PAPER = {  # model, TP, PP, DP
    "1.7B": ("gpt_1b7", 1, 1, 32),
    "3.6B": ("gpt_3b6", 2, 1, 32),
    "7.5B": ("gpt_7b5", 4, 1, 32),
    "18B": ("gpt_18b", 8, 1, 32),
    "39B": ("gpt_39b", 8, 2, 32),
    "76B": ("gpt_76b", 8, 4, 32),
    "145B": ("gpt_145b", 8, 8, 24),
    "310B": ("gpt_310b", 8, 16, 15),
    "530B": ("gpt_530b", 8, 35, 9),
    "1T": ("gpt_1t", 8, 64, 6),
    "GPT-3": ("gpt3_175b", 8, 16, 8),
}
# Model, TP, PP, GiB without recomputation, and the share of them that selective and full recomputation keep.
COUNTED = {
    "22B": ("gpt_22b", 8, 1, 59.25, 0.4942, 0.0764),
    "1T without replicas": ("gpt_1t", 8, 64, 131.25, 0.6204, 0.0942),
}
KINDS = ("", "ckpt_selective", "ckpt")
COLUMNS = (
    "model",
    "TP",
    "PP",
    "DP",
    "GPUs",
    "micro-batch",
    "theory, GiB",
    "static, GiB",
    "off",
    "needs, GiB",
    "left, GiB",
    "CPU s",
)
COUNTED_COLUMNS = ("model", "TP", "PP", "recomputed", "counted", "predicted", "off")
PEAK_COLUMNS = ("model, sequence and layout", "measured", "predicted", "off")


def cell_of(row: str, catalog: Catalog) -> Cell:
    """The row's cell, on nodes of eight."""
    model, tensor, stages, replicas = PAPER[row]
    widths = (("tp", tensor), ("dp", replicas), ("acc", stages))
    named = "".join(f"+{name}{width}" for name, width in widths if width > 1)
    return parse_cell(f"{model}-megatron+fp16+ckpt{named}-a100_80g_x8n{tensor * stages * replicas // 8}", catalog)


def parameters_of(cell: Cell, rank: int) -> int:
    """The parameters of a rank: a layer has 12 h² + 13 h, of which the matrices and the biases of those that are cut by
    columns are divided (arXiv 1909.08053); the first stage has the embeddings, the last a norm and the tied head.
    """
    config, layout = cell.model.config, cell.layout
    hidden, stage = config["n_embd"], rank // layout.stage_ranks
    layers = config["n_layer"] // layout.pipeline
    multiple = 128 * layout.tensor if config["vocab_size"] % layout.tensor else 1
    embedding = -(-config["vocab_size"] // multiple) * multiple * hidden // layout.tensor
    count = layers * ((12 * hidden**2 + 7 * hidden) // layout.tensor + 6 * hidden)
    if stage == 0:
        count += embedding + config["n_positions"] * hidden
    if stage == layout.pipeline - 1:
        count += 2 * hidden + (embedding if layout.pipeline > 1 else 0)
    return count


def line(row: str, cell: Cell, one: Prediction) -> tuple[list[str], float]:
    """The row of the table, and how far its static memory is from theory."""
    _, tensor, stages, replicas = PAPER[row]
    theory = BYTES * parameters_of(cell, one.rank)
    static = sum(one.parts.get(name, 0) for name in STATIC)
    off = static / theory - 1
    facts = [row, tensor, stages, replicas, cell.hardware.world_size, cell.workload.micro_batch]
    sizes = [f"{theory / GIB:.2f}", f"{static / GIB:.2f}", f"{off:+.2%}".replace("%", " %")]
    needs = [f"{one.needed_bytes / GIB:.1f}", f"{(headroom(one) or 0) / GIB:.1f}", f"{one.seconds:.0f}"]
    return [*map(str, facts), *sizes, *needs], off


def activations(row: str, catalog: Catalog) -> Iterator[list[str]]:
    """The rows of a model whose activations the paper counts."""
    model, tensor, stages, whole, selective, full = COUNTED[row]
    for kind, share in zip(KINDS, (1.0, selective, full), strict=True):
        named = "".join(f"+{name}" for name in (kind, f"tp{tensor}", f"acc{stages}" if stages > 1 else "") if name)
        nodes = f"n{tensor * stages // 8}" if stages > 1 else ""
        (one,) = predict([parse_cell(f"{model}-megatron+fp16{named}-a100_80g_x8{nodes}", catalog)], catalog)
        here, counted = one.largest["activations"] / GIB, share * whole
        facts = [row, tensor, stages, {"": "nothing", "ckpt": "all", "ckpt_selective": "attention"}[kind]]
        yield [*map(str, facts), f"{counted:.2f}", f"{here:.2f}", percent(here / counted - 1, "+")]


def peaks() -> Iterator[list[str]]:
    """The rows that SimuMax measured, each layout once."""
    for one in printed():
        if one.table == "simumax_b200":
            label, here = one.row.label.rpartition(" x")[0], one.gib * (1 + one.off)
            yield [label, f"{one.gib:.2f}", f"{here:.2f}", percent(one.off, "+")]


def by_model(name: str) -> dict[str, list[list[str]]]:
    """The rows of a table that is there, by their model."""
    found: dict[str, list[list[str]]] = {}
    for row in map(list, (line.values() for line in read_table(name))):
        found.setdefault(row[0], []).append(row)
    return found


def main() -> int:
    """Trace the rows, and write the tables after each."""
    catalog, worst = Catalog(), 0.0
    rows, counted = by_model("memory/megatron"), by_model("memory/megatron_activations")
    for row in sys.argv[1:] or [*PAPER, *COUNTED]:
        if row in COUNTED:
            counted[row] = list(activations(row, catalog))
            print(counted[row], flush=True)
        else:
            cell = cell_of(row, catalog)
            (one,) = predict([cell], catalog)
            found, off = line(row, cell, one)
            rows[row] = [found]
            worst = max(worst, abs(off))
            print(*found, flush=True)
        write_table("memory/megatron", COLUMNS, [line for name in PAPER for line in rows.get(name, ())])
        write_table(
            "memory/megatron_activations", COUNTED_COLUMNS, [line for name in COUNTED for line in counted.get(name, ())]
        )
    write_table("memory/megatron_peaks", PEAK_COLUMNS, peaks())
    return int(worst > MOST)


if __name__ == "__main__":
    sys.exit(main())
