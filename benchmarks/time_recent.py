"""Readers of the tables of recent software: products in fewer bits, experts, and sequences that ranks share."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from time_rows import CATALOG, Row, lines
from time_words import EFA, SELENE, numbers, words

from perfsuite.features.predict.plan.planned import planned
from perfsuite.features.predict.time.options import RELEASES
from perfsuite.features.predict.time.shape import Shape

NODES = {"gb200": 4, "gb300": 4}
# Bytes per second and device of the network: 800 Gbit/s with ConnectX-8, else 400.
NETWORKS = {"gb300": 100e9, "b300": 100e9}


# Models whose recipes set use_precision_aware_optimizer and moments in bf16: src/megatron/bridge/recipes/deepseek/
# deepseek_v3.py of NVIDIA-NeMo/Megatron-Bridge at 05d003fb89.
PRECISION_AWARE = ("deepseek_v3",)


def shape_of(model: str) -> Shape:
    """The shape of a model that the planner knows by name."""
    return planned(model, CATALOG, {}).shape


def bridge(path: Path) -> Iterator[Row]:
    """Megatron-Bridge's own runs, and their recipes."""
    for line in lines(path):
        number = numbers(line)
        model, device = line["model"], line["device"]
        shape = replace(shape_of(model), extra=number["mtp"])
        options = _switches(line, "dispatch_overlap", "attention_fp8")
        options |= {name: line[name] for name in ("graphs", "gradient_bytes", "parameter_bytes")}
        options |= {"tensor_overlap": "all" if number["tensor_overlap"] else "backward"}
        options |= {"dispatch": line["dispatch"]} if line["dispatch"] else {}
        options |= _optimizer(model)
        ranks, tokens = number["n_gpus"], number["global_batch"] * number["seq"]
        yield Row(
            table=path.stem, label=f"{model} {line['precision']} on {ranks} {device}, {line['release']}", device=device,
            node=NODES.get(device, 8), stack="megatron_core", shape=shape,
            layout=words(number, "ckpt_pointwise" if line["recompute"] == "pointwise" else "", "zero1"),
            sequence=number["seq"], batch=number["global_batch"], precision=line["precision"], options=options,
            network=NETWORKS.get(device, EFA), seconds=tokens / (ranks * float(line["tokens_per_s_per_gpu"])),
            family=model, release=line["release"],
        )  # fmt: skip


def bridge_other(path: Path) -> Iterator[Row]:
    """Megatron-Bridge's runs of which no recipe is known: with what the recipes of their release have. Those of
    Llama 3 70B without tensor parallelism and stages have Megatron-FSDP (scripts/performance/configs/llama/
    llama3_workload_base_configs.py at 00919dcf1f).
    """
    for line in lines(path):
        number = numbers(line)
        model, device, release = line["model"], line["device"], line["release"]
        ranks, tokens = number["n_gpus"], number["global_batch"] * number["seq"]
        yield Row(
            table=path.stem, label=f"{model} {line['precision']} on {ranks} {device}, {release}", device=device,
            node=NODES.get(device, 8), stack="megatron_core", shape=replace(shape_of(model), extra=0),
            layout=words(number, "zero3" if model == "llama_70b" and number["tp"] * number["pp"] == 1 else "zero1"),
            sequence=number["seq"], batch=number["global_batch"],
            precision=line["precision"], options={"release": max(release, RELEASES[0])} | _optimizer(model),
            network=NETWORKS.get(device, EFA), seconds=tokens / (ranks * float(line["tokens_per_s_per_gpu"])),
            family=model, release=release,
        )  # fmt: skip


def _optimizer(model: str) -> dict[str, str]:
    return {"optimizer": "adam_bf16"} if model in PRECISION_AWARE else {}


def _switches(line: Mapping[str, str], *names: str) -> dict[str, str]:
    return {name: "on" if line[name] == "1" else "off" for name in names}


def simumax(path: Path) -> Iterator[Row]:
    """Megatron-LM on eight B200, with nothing overlapped: models of a few layers."""
    quiet = {"gradient_overlap": "off", "tensor_overlap": "none", "send_overlap": "off", "graphs": "none"}
    quiet |= {"cross_entropy": "fused", "step": "adam+clip", "gradient_bytes": "4", "dispatch": "all_to_all"}
    for line in lines(path):
        number = numbers(line) | {"micro_batch": 1}
        shape, layers = replace(shape_of(line["model"]), extra=0), number["layers"]
        *first, last = shape.stacks
        if line["model"] == "llama_405b":
            last = replace(last, kv_heads=16)
        stacks = (*(replace(stack, layers=1) for stack in first), replace(last, layers=layers - len(first)))
        widths = " ".join(f"{name}{number[name]}" for name in ("tp", "pp", "cp", "ep") if number[name] > 1)
        label = f"{line['model']} of {layers} layers, s{line['seq']} {widths}"
        yield Row(
            table=path.stem, label=f"{label} x{number['micro_batches']}", device="b200", stack="megatron_core",
            shape=replace(shape, stacks=stacks), layout=words(number, "zero1"), sequence=number["seq"],
            batch=number["micro_batches"] * number["dp"], options=quiet, network=EFA,
            seconds=float(line["iter_ms"]) / 1e3, family=line["model"],
            group=f"{line['model']} {line['seq']} {number['micro_batches'] * number['dp']}",
        )  # fmt: skip


def automodel(path: Path) -> Iterator[Row]:
    """NeMo Automodel on H100."""
    for line in lines(path):
        number = numbers(line)
        number["dp"] = number["n_gpus"] // (number["tp"] * number["pp"] * number["cp"])
        shards = number["fsdp"] // number["cp"]
        layout = words(number, "ckpt", "zero3", f"shard{shards}" if shards < number["dp"] else "")
        yield Row(
            table=path.stem, label=f"{line['model']} on {number['n_gpus']} {line['device']}", device=line["device"],
            stack="automodel", shape=replace(shape_of(line["model"]), extra=0), layout=layout, sequence=number["seq"],
            batch=number["global_batch"], network=EFA, seconds=float(line["step_s"]), family=line["model"],
        )  # fmt: skip


def torchtitan(path: Path) -> Iterator[Row]:
    """torchtitan's Llama 3 8B."""
    kinds = {"operators": "ckpt_operators", "full": "ckpt", "none": ""}
    for line in lines(path):
        number = numbers(line)
        shards, ranks = number["dp"], number["n_gpus"]
        number["dp"] = ranks // (number["tp"] * number["cp"])
        layout = words(number, kinds[line["recompute"]], "zero3", f"shard{shards}" if shards < number["dp"] else "")
        batch = number["dp"] * number["micro_batch"]
        options = {"compile": line["compile"], "parameter_bytes": "2"}
        options |= {"tensor_overlap": "all" if number["tensor_overlap"] else "none"}
        yield Row(
            table=path.stem, label=f"{line['table']} {line['precision']} on {ranks} {line['device']} {layout}",
            device=line["device"], stack="torchtitan", shape=shape_of(line["model"]), layout=layout,
            sequence=number["seq"], batch=batch, precision=line["precision"], options=options, network=EFA,
            seconds=batch * number["seq"] / (ranks * float(line["tokens_per_s_per_gpu"])), family=line["table"],
            throttled=line["watts"] != "700",
        )  # fmt: skip


def moe_goldens(path: Path) -> Iterator[Row]:
    """Megatron-LM's tests of models with experts."""
    for line in lines(path):
        number = numbers(line)
        shape = shape_of({"deepseek": "deepseek_v3", "mixtral": "mixtral_8x7b"}[line["model"]])
        last = shape.stacks[-1]
        assert last.experts
        if line["model"] == "deepseek":
            last = replace(last, experts=replace(last.experts, count=64))
        first = sum(stack.layers for stack in shape.stacks[:-1])
        stacks = (*shape.stacks[:-1], replace(last, layers=number["layers"] - first))
        yield Row(
            table=path.stem, label=f"{line['case'].partition('_tp')[0]} on {line['device']}", device=line["device"],
            stack="megatron_core", shape=replace(shape, stacks=stacks, vocabulary=number["vocab"]),
            layout=words(number, "zero1"), sequence=number["seq"], batch=number["global_batch"],
            options={
                "dispatch": line["dispatch"], "tensor_overlap": "backward", "send_overlap": "off", "graphs": "none",
            },
            network=SELENE if "a100" in line["device"] else EFA, seconds=float(line["step_s"]), family=line["model"],
        )  # fmt: skip
