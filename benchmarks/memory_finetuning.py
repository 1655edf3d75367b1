"""Memory of fine-tuning that others measured on GPUs, compared with perfsuite's predictions.

    python benchmarks/memory_finetuning.py      # writes docs/data/memory/finetuning.csv

benchmarks/published/memory/finetuning.csv has the rows, each as a cell, with the sources. The first Qwen has attention
without groups and biases for queries, keys and values, as Qwen2's class has. Its loss is that of its own class.
"""

import csv
import os
import statistics
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from memory_published import GIB, MODELS
from result_tables import DATA, write_table

from perfsuite.catalog.cell import Cell, parse_cell
from perfsuite.catalog.definitions import Model, Workload
from perfsuite.catalog.registry import Catalog
from perfsuite.features.predict.prediction import Prediction
from perfsuite.features.predict.traced_memory import predict

ROWS = Path(__file__).parent / "published" / "memory" / "finetuning.csv"
COLUMNS = ("source", "cell", "figure", "published", "predicted", "error")


def _qwen(name: str, parameters: int, hidden: int, layers: int, feed_forward: int, vocabulary: int = 151936) -> Model:
    return Model(
        name=name,
        family="qwen",
        task="causal_lm",
        source="arXiv 2309.16609, config.json of Qwen",
        workload=Workload(micro_batch=1, sequence_length=512),
        parameters=parameters,
        config_class="Qwen2Config",
        model_class="Qwen2ForCausalLM",
        loss="past_losses:of_qwen",
        config={
            "vocab_size": vocabulary,
            "hidden_size": hidden,
            "num_hidden_layers": layers,
            "num_attention_heads": hidden // 128,
            "num_key_value_heads": hidden // 128,
            "intermediate_size": feed_forward,
            "tie_word_embeddings": False,
            "use_cache": False,
        },
        vocabulary=vocabulary,
    )


QWEN = (
    _qwen("qwen_1_8b", 1_836_828_672, 2048, 24, 5504),
    _qwen("qwen_7b", 7_721_324_544, 4096, 32, 11008),
    _qwen("qwen_14b", 14_167_290_880, 5120, 40, 13696, 152064),
)


def as_published(source: str, cell: Cell) -> Cell:
    """The cell with what the source's code did otherwise than today's transformers.

    fms had transformers 4.48.1, whose loss copied logits. litgpt never ties the head to the table of tokens: its
    scripts/convert_hf_checkpoint.py copies it.
    """
    model = cell.model
    if source == "fms" and "chunked_loss" not in cell.strategy.name:
        model = replace(model, loss="past_losses:of_transformers_4")
    if source == "litgpt" and model.config.get("tie_word_embeddings"):
        table = model.config["vocab_size"] * model.config["hidden_size"]
        config = {**model.config, "tie_word_embeddings": False}
        model = replace(model, config=config, parameters=model.parameters + table, cut=None)
    return replace(cell, model=model)


def predicted(figure: str, prediction: Prediction) -> int:
    """The prediction's counterpart of the published number, in bytes.

    A process on a GPU with room occupies all that its allocator reserved, and the context: no cache is freed there.
    """
    if figure == "occupied":
        return prediction.reserved_bytes + sum(prediction.overhead.values())
    return prediction.reserved_bytes if figure == "reserved" else prediction.allocated_bytes


def main() -> int:
    """Predict, compare, write."""
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)  # of the process that traces: past_losses
    catalog = Catalog((), (*MODELS, *QWEN))
    with ROWS.open() as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    cells = [as_published(row["source"], parse_cell(row["cell"], catalog)) for row in rows]
    found = predict(cells, catalog, processes=2, padded=False)
    lines, errors = [], defaultdict[str, list[float]](list)
    for row, cell, one in zip(rows, cells, found, strict=True):
        published, here = float(row["published_gib"]), predicted(row["figure"], one) / GIB
        errors[row["source"]].append(here / published - 1)
        errors["all"].append(here / published - 1)
        shown = f"{published:.2f}", f"{here:.2f}", f"{100 * (here / published - 1):+.1f} %"
        lines.append((row["source"], cell.id, row["figure"], *shown))
        print(*lines[-1], flush=True)
    write_table("memory/finetuning", COLUMNS, lines, DATA)
    summary = [
        (name, len(some), f"{100 * statistics.median(map(abs, some)):.1f} %", f"{100 * max(map(abs, some)):.1f} %")
        for name, some in errors.items()
    ]
    write_table("memory/finetuning_errors", ("source", "rows", "median error", "worst"), summary, DATA)
    return 0


if __name__ == "__main__":
    sys.exit(main())
