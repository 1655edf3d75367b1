"""Memory that others measured on GPUs, compared with perfsuite's predictions and other estimators' figures.

    python benchmarks/memory_published.py      # writes docs/data/memory/published.csv

bert-large   huggingface.co/docs/transformers/v4.21.0/perf_train_gpu_one, "Efficient Training on a Single GPU" (V100 of
             16 GB, MiB by NVML: all of a process, its CUDA context of 1,343 MiB with it)
llama_8b     benchmarks/llama3_h100_202412_torchtitan.md of pytorch/torchtitan (H100, GiB reserved, the fullest rank)
llama2       tutorials/resource-tables.md of Lightning-AI/litgpt (A100 of 40 GB, 10⁹ bytes allocated; 1,304 tokens)
"""

import dataclasses
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

from result_tables import DATA, write_table

from perfsuite.catalog.cell import Cell, parse_cell
from perfsuite.catalog.definitions import Model, Workload
from perfsuite.catalog.registry import Catalog
from perfsuite.features.predict.prediction import Prediction
from perfsuite.features.predict.traced_memory import predict

MIB, GIB, GB = 2**20, 2**30, 10**9
CONTEXT_2022 = 1343 * MIB  # "GPU memory occupied: 1343 MB" before anything but the kernels was loaded
HERE = Path(__file__).parent
FOLDER = DATA
COLUMNS = ("cell", "figure", "published", "predicted", "error", "accelerate", "DeepSpeed")


@dataclass(frozen=True)
class Figure:
    """One published figure: ``what`` of a prediction it stands for."""

    cell: str
    published: float
    what: str  # "occupied", "reserved" or "allocated"
    estimates: str = ""


def _llama2(name: str, parameters: int, hidden: int, layers: int, heads: int, feed_forward: int) -> Model:
    return Model(
        name=name,
        family="llama",
        task="causal_lm",
        source="arXiv 2307.09288, config.json of meta-llama",
        workload=Workload(micro_batch=1, sequence_length=1304),
        parameters=parameters,
        config_class="LlamaConfig",
        model_class="LlamaForCausalLM",
        config={
            "vocab_size": 32000,
            "hidden_size": hidden,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": heads,
            "intermediate_size": feed_forward,
            "use_cache": False,
        },
        vocabulary=32000,
    )


MODELS = (
    Model(
        name="bert_large",
        family="bert",
        task="sequence_classification",
        source="arXiv 1810.04805, bert-large-uncased",
        workload=Workload(micro_batch=4, sequence_length=512),
        parameters=335_143_938,
        config_class="BertConfig",
        model_class="BertForSequenceClassification",
        config={
            "hidden_size": 1024,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "intermediate_size": 4096,
        },
        positions=512,
        vocabulary=30522,
    ),
    _llama2("llama2_7b", 6_738_415_616, 4096, 32, 32, 11008),
    _llama2("llama2_13b", 13_015_864_320, 5120, 40, 40, 13824),
)
SOFTMAX = "+torch110_softmax"  # benchmarks/published/techniques/others.py
_BERT = "bert_large-single+{}+kept_gradients" + SOFTMAX + "-v100_32g_x1"
FIGURES = (
    Figure(_BERT.format("adamw_loop+eager"), 14949 * MIB, "occupied"),
    Figure(_BERT.format("adamw_loop+eager+acc4") + "-b1", 8681 * MIB, "occupied"),
    Figure(_BERT.format("adamw_loop+ckpt+eager+acc4") + "-b1", 6775 * MIB, "occupied"),
    Figure(_BERT.format("fp16+adamw_loop+eager"), 13939 * MIB, "occupied"),
    Figure(_BERT.format("fp16+adamw_loop+ckpt+eager+acc4") + "-b1", 7275 * MIB, "occupied"),
    Figure(_BERT.format("adafactor+eager"), 12295 * MIB, "occupied"),
    Figure(_BERT.format("fp16+adafactor+ckpt+eager+acc4") + "-b1", 4847 * MIB, "occupied"),
    Figure(_BERT.format("adamw8bit+eager"), 13085 * MIB, "occupied"),
    Figure(_BERT.format("fp16+adamw8bit+ckpt+eager+acc4") + "-b1", 5363 * MIB, "occupied"),
    Figure("llama_8b-fsdp2+bf16+adamw_fused+ckpt_torchtitan-h100_x8-b2-s8192", 82.4 * GIB, "reserved"),
    Figure("llama_8b-fsdp2+bf16+adamw_fused+ckpt_torchtitan-h100_x128-b2-s8192", 67.0 * GIB, "reserved"),
    Figure("llama2_7b-single+lora_litgpt+pure_bf16-a100_40g_x1", 21.30 * GB, "allocated"),
    Figure("llama2_7b-single+lora_litgpt+pure_bf16-a100_40g_x1-b2", 29.07 * GB, "allocated"),
    Figure("llama2_13b-single+lora_litgpt+pure_bf16-a100_40g_x1", 38.12 * GB, "allocated"),
)


def predicted(figure: Figure, prediction: Prediction) -> int:
    """The prediction's counterpart of the published number."""
    if figure.what == "occupied":
        return prediction.reserved_bytes + CONTEXT_2022
    return prediction.reserved_bytes if figure.what == "reserved" else prediction.allocated_bytes


def accelerate_says(cell: Cell) -> int:
    """The estimate of ``accelerate estimate-memory`` for training with Adam, in the dtype of the cell's arithmetic."""
    from accelerate.commands.estimate import estimate_training_usage

    names = {choice.technique.name for choice in cell.strategy.choices}
    dtype = "bfloat16" if names & {"bf16", "pure_bf16"} else "float16" if "fp16" in names else "float32"
    return int(max(estimate_training_usage(4 * cell.model.parameters, dtype).values()))


def deepspeed_says(cell: Cell) -> int:
    """The estimate of DeepSpeed's ZeRO-3 estimator without offload; the largest layer is the embedding."""
    from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs

    model, hardware = cell.model, cell.hardware
    embedding = int(model.config["hidden_size"]) * model.vocabulary
    _, gpu, _ = estimate_zero3_model_states_mem_needs(
        model.parameters, embedding, hardware.ranks, hardware.nodes, cpu_offload=False
    )
    return int(gpu)


def main() -> int:
    """Predict, compare, write."""
    catalog = Catalog((HERE / "published",), MODELS)
    today = [dataclasses.replace(one, cell=one.cell.replace(SOFTMAX, "")) for one in FIGURES if SOFTMAX in one.cell]
    figures = [*FIGURES, *today]
    cells = [parse_cell(figure.cell, catalog) for figure in figures]
    found = predict(cells, catalog, processes=2, padded=False)
    lines = []
    errors: dict[str, list[float]] = {}
    for figure, cell, one in zip(figures, cells, found, strict=True):
        here = predicted(figure, one)
        error = here / figure.published - 1
        how = " with today's softmax" if figure in today else ""
        errors.setdefault(cell.model.name.rpartition("_")[0] + how, []).append(error)
        others = accelerate_says(cell), deepspeed_says(cell)
        shown = [f"{size / GIB:.2f}" for size in (figure.published, here)]
        sizes = [f"{size / GIB:.2f}" for size in others]
        lines.append((figure.cell, figure.what, *shown, f"{100 * error:+.1f} %", *sizes))
        print(*lines[-1], flush=True)
    write_table("memory/published", COLUMNS, lines, FOLDER)
    means = [
        (name, f"{100 * statistics.fmean(map(abs, some)):.1f} %", f"{100 * max(map(abs, some)):.1f} %")
        for name, some in errors.items()
    ]
    write_table("memory/published_errors", ("models", "mean error", "worst"), means, FOLDER)
    return 0


if __name__ == "__main__":
    sys.exit(main())
