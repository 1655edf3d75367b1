"""The tables of ``benchmarks/published/times/``: each has a reader, which turns a line into a Row.

FLOP conventions are not needed: rows are compared in seconds.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from time_asked import asked
from time_recent import automodel, bridge, bridge_other, moe_goldens, simumax, torchtitan
from time_rows import Row, lines
from time_words import EDR, EFA, GBIT, ROCE, SELENE, VTRAIN, numbers, words

from perfsuite.features.predict.time.shape import LayerStack, Shape, decoder, gpt_layers, llama_layers

HERE = Path(__file__).parent / "published" / "times"

RECOMPUTED = {"full": "ckpt", "selective": "ckpt_selective", "none": ""}


def megatron(path: Path) -> Iterator[Row]:
    """arXiv 2205.05198 and 2104.04473: NVIDIA's own runs."""
    for line in lines(path):
        number = numbers(line)
        early = "tflops_per_gpu_hw" in line  # before sequence parallelism and the overlap of backward's messages
        options = {"sequence_parallel": "on" if number.get("sequence_parallel") else "off"}
        options["gradient_overlap"] = "on" if line.get("ddp") == "torch" else "off"
        options |= {"tensor_overlap": "none"} if early else {}
        seconds = float(line["iter_time_s"]) if not early else _sc21_seconds(number, float(line["tflops_per_gpu_hw"]))
        label = f"{line['model']} on {line['n_gpus']}" + ("" if early else f", {line['recompute']}")
        yield Row(
            table=path.stem, label=label, device="a100_80g", stack="megatron",
            shape=decoder(gpt_layers(number["layers"], number["hidden"], number["heads"]), number["vocab"],
                          positions=number["seq"]),
            layout=words(number, RECOMPUTED["full" if early else line["recompute"]]), sequence=number["seq"],
            batch=number["global_batch"], options=options, network=SELENE, seconds=seconds, group=label,
        )  # fmt: skip


def _sc21_seconds(number: dict[str, int], tflops: float) -> float:
    """Equation 3 of arXiv 2104.04473, solved for the seconds."""
    s, h, l, v = (number[name] for name in ("seq", "hidden", "layers", "vocab"))  # noqa: E741
    flops = 96 * number["global_batch"] * s * l * h**2 * (1 + s / (6 * h) + v / (16 * l * h))
    return flops / (number["n_gpus"] * tflops * 1e12)


def vtrain(path: Path) -> Iterator[Row]:
    """Megatron without overlap: vTrain's ground truth (Megatron-DeepSpeed, A100), DLPerf's (Megatron-LM, V100)."""
    volta = path.stem == "megatron_v100"
    bare = {"tensor_overlap": "none", "gradient_overlap": "off", "sequence_parallel": "off"}
    for line in lines(path):
        number = numbers({name: one for name, one in line.items() if name != "iter_ms"})
        vocabulary = -(-50257 // (128 * number["tp"])) * 128 * number["tp"]
        label = " ".join(f"{name}{number[name]}" for name in ("hidden", "layers", "tp", "dp", "pp", "micro_batch"))
        yield Row(
            table=path.stem, label=label, device="v100_32g" if volta else "a100_80g",
            stack="megatron" if volta else "megatron_deepspeed",
            shape=decoder(gpt_layers(number["layers"], number["hidden"], number["heads"]), vocabulary,
                          positions=number["seq"]),
            layout=words(number, "ckpt"), sequence=number["seq"], batch=number["global_batch"],
            options=bare if volta else {}, network=EDR if volta else VTRAIN, seconds=float(line["iter_ms"]) / 1e3,
            group=" ".join(line[name] for name in ("hidden", "layers", "n_gpus", "global_batch")),
            family=line["hidden"],
        )  # fmt: skip


def mosaicml(path: Path) -> Iterator[Row]:
    """MPT with FSDP; rows in fp8 are left out, since their recipe is not published."""
    for line in lines(path):
        if "fp8" in line["precision"]:
            continue
        layers, hidden, heads = (int(line[name]) for name in ("n_layers", "d_model", "n_heads"))
        length, samples = int(line["seq_len"]), int(line["global_batch_size"])
        number = {"dp": int(line["n_gpus"]), "micro_batch": int(line["micro_batch_size"])}
        yield Row(
            table=path.stem, label=f"{line['model']} s{length} on {number['dp']} {line['gpu']}",
            device={"h100_80gb": "h100", "a100_80gb": "a100_80g", "a100_40gb": "a100_40g"}[line["gpu"]],
            stack="composer_fsdp", shape=decoder(gpt_layers(layers, hidden, heads), int(line["vocab"])),
            layout=words(number, "ckpt" if line["act_ckpt"] == "True" else "", "zero3"), sequence=length, batch=samples,
            options={"gradient_bytes": "2" if line["mp_mode"] == "PURE" else "4"},
            network=EFA if "h100" in line["gpu"] else ROCE,
            seconds=samples * length / float(line["tokens_per_s"]),
            group=" ".join(line[name] for name in ("model", "seq_len", "gpu", "n_gpus")), family=line["model"],
        )  # fmt: skip


# The shapes of scripts/scaling_benchmarks.py in huggingface/nanotron at 2411b022a7.
NANOTRON = {
    "1B": decoder(llama_layers(16, 2048, 32, 8192), 131072),
    "3B": decoder(llama_layers(28, 3072, 32, 8192), 131072),
    "8B": decoder(llama_layers(32, 4096, 32, 14336), 131072, tied=False),
    "80B": decoder(llama_layers(80, 8192, 64, 28672), 131072, tied=False),
}


def nanotron(path: Path) -> Iterator[Row]:
    """The ultra-scale playbook's layouts that ran."""
    return (nanotron_row(path.stem, line) for line in lines(path) if line["status"] == "ok")


def nanotron_row(table: str, line: dict[str, str]) -> Row:
    """One line of the playbook; its seconds are infinite if it failed."""
    number = numbers(line)
    batch = number["dp"] * number["micro_batch"] * number["accumulation"]
    ranks = number["dp"] * number["tp"] * number["pp"]
    rate = float(line["tok_s_gpu"] or 0) * ranks
    return Row(
        table=table,
        label=" ".join([line["model"], *(f"{name}{line[name]}" for name in ("dp", "pp", "tp", "zero")),
                        f"b{line['micro_batch']}"]),
        device="h100", stack="nanotron", shape=NANOTRON[line["model"]],
        layout=words(number, "zero1" if number["zero"] else ""), sequence=number["seq"], batch=batch, network=EFA,
        seconds=batch * number["seq"] / rate if rate else math.inf,
        group=f"{line['model']} {batch} {line['nodes']}", family=line["model"],
    )  # fmt: skip


# config.json of meta-llama/Llama-2-7b to 70b, and of codellama/CodeLlama-34b with its vocabulary of 32,000.
LLAMA2 = {
    "7b": decoder(llama_layers(32, 4096, 32, 11008), 32000, tied=False),
    "13b": decoder(llama_layers(40, 5120, 40, 13824), 32000, tied=False),
    "34b": decoder(llama_layers(48, 8192, 64, 22016, kv_heads=8), 32000, tied=False),
    "70b": decoder(llama_layers(80, 8192, 64, 28672, kv_heads=8), 32000, tied=False),
}


def fms(path: Path) -> Iterator[Row]:
    """Llama 2 with FSDP, and with FSDP inside of nodes alone."""
    for line in lines(path):
        number = numbers(line)
        ranks, length = number["n_gpus"], number["seq"]
        layout = words(number | {"dp": ranks}, RECOMPUTED[line["recompute"]], "zero3",
                       "shard8" if line["sharding"] == "HSDP" else "")  # fmt: skip
        batch = number["micro_batch"] * ranks
        yield Row(
            table=path.stem, label=f"{line['version']} {line['model']} on {ranks} {line['device']}",
            device=line["device"], stack="fsdp", shape=LLAMA2[line["model"]], layout=layout, sequence=length,
            batch=batch, network=float(line["node_gbit"]) * GBIT / 8,
            seconds=batch * length / (ranks * float(line["tokens_per_s_per_gpu"])),
        )  # fmt: skip


# The names that --set has for what the cases' model_config.yaml do in every step.
STEP = {
    "clip-grad": "clip",
    "log-num-zeros-in-grad": "zeros",
    "calculate-per-token-loss": "per_token",
    "log-params-norm": "norm",
}
PLATFORMS = {"dgx_a100": ("a100_80g", 8), "dgx_h100": ("h100", 8), "dgx_gb200": ("gb200", 4)}


def goldens(path: Path) -> Iterator[Row]:
    """The nightly tests of Megatron-LM, and NVIDIA's benchmarks in the same columns."""
    for line in lines(path):
        number = numbers(line)
        width = number.get("kv_channels", number["hidden"] // number["heads"])
        stack = LayerStack(
            layers=number["layers"], hidden=number["hidden"], heads=number["heads"],
            kv_heads=number.get("kv_groups", number["heads"]), head_width=width,
            feed_forward=number.get("ffn", 4 * number["hidden"]),
        )  # fmt: skip
        stacks: tuple[LayerStack, ...] = (stack,)
        if "decoder_layers" in number:
            read = replace(stack, causal=False)
            stacks = (read, replace(stack, layers=number["decoder_layers"], target=True, source_hidden=stack.hidden))
        number["dp"] = number["world"] // (number["tp"] * number["pp"])
        device, node = PLATFORMS[line["platform"]]
        yield Row(
            table=path.stem, label=f"{line['case'].split('/')[1]} {line['platform']}", device=device, node=node,
            stack="megatron_core", shape=Shape(stacks=stacks, vocabulary=number["vocab"], tied=not number["untied"]),
            layout=words(number, "zero1" if number["distributed_optimizer"] else ""), sequence=number["seq"],
            target=number.get("decoder_seq", 0), batch=number["global_batch"], options=_golden_options(line, number),
            network=SELENE if "a100" in line["platform"] else EFA, seconds=float(line["median_s"]),
            family=line["case"].split()[0],
        )  # fmt: skip


def _golden_options(line: Mapping[str, str], number: Mapping[str, int]) -> dict[str, str]:
    def switch(on: object) -> str:
        return "on" if on else "off"

    found = {
        "sequence_parallel": switch(number["sequence_parallel"]),
        "gradient_overlap": switch("overlap-grad-reduce" in line["other_args"]),
        "tensor_overlap": "all" if "tp-comm-overlap" in line["other_args"] else "backward",
        "send_overlap": switch("overlap-p2p" in line["other_args"]),
        "gradient_bytes": str(number.get("gradient_bytes", 4)),
        "dropout": switch(number.get("dropout", 0)),
        "step": "+".join(["adam", *(STEP[one] for one in line["step_options"].split(";"))]),
    }
    return found | ({"attention": line["attention"]} if line.get("attention") else {})


READERS: dict[str, Callable[[Path], Iterator[Row]]] = {
    "vtrain_one_node": vtrain,
    "megatron_2205_05198": megatron,
    "mosaicml_8gpu": mosaicml,
    "nanotron_playbook": nanotron,
    "megatron_sc21": megatron,
    "megatron_goldens": goldens,
    "fms_fsdp": fms,
    "vtrain_multi_node": vtrain,
    "mosaicml_multi_node": mosaicml,
    "nanotron_multi_node": nanotron,
    "nemo_dgxc": goldens,
    "megatron_v100": vtrain,
    "megatron_tiny_t5": goldens,
    "megatron_bridge": bridge,
    "megatron_bridge_other": bridge_other,
    "automodel": automodel,
    "torchtitan": torchtitan,
    "megatron_moe": moe_goldens,
    "simumax_b200": simumax,
    "megatron_hybrid": asked,
    "megatron_hybrid_nvfp4": asked,
    "dgxc_2025": asked,
    "dgxc_2025_sft": asked,
    "finetuning": asked,
    "maxtext": asked,
    "maxtext_other": asked,
    "torchao": asked,
    "xtuner": asked,
    "internevo": asked,
}
CALIBRATION = (
    "vtrain_one_node", "megatron_2205_05198", "mosaicml_8gpu", "nanotron_playbook", "megatron_tiny_t5", "nemo_dgxc",
    "mosaicml_multi_node", "vtrain_multi_node", "megatron_bridge", "megatron_hybrid", "dgxc_2025",
    "maxtext",
)  # fmt: skip
JUDGED = (
    "megatron_sc21", "megatron_goldens", "fms_fsdp", "nanotron_multi_node", "megatron_v100", "automodel", "torchtitan",
    "megatron_moe", "megatron_bridge_other", "simumax_b200", "megatron_hybrid_nvfp4", "dgxc_2025_sft",
    "finetuning", "torchao", "xtuner", "internevo", "maxtext_other",
)  # fmt: skip


def table(name: str) -> list[Row]:
    """The rows of a table of this repository."""
    return list(READERS[name](HERE / f"{name}.csv"))
