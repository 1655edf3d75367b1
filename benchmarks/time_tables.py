"""The tables of ``benchmarks/published/times/``: each has a reader, which turns a line into a Row.

FLOP conventions are not needed: rows are compared in seconds.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from time_rows import Row, lines

from perfsuite.catalog.definitions import Layout
from perfsuite.predict.time import costs
from perfsuite.predict.time.setup import Setup
from perfsuite.predict.time.shape import Shape, Stack, decoder

HERE = Path(__file__).parent / "published" / "times"
GBIT = 1e9 / 8
# Bytes per second of the network per device: clusters of the sources.
SELENE = 25e9  # 8 cards of HDR, 200 Gbit/s each, per node: arXiv 2104.04473, section 5
VTRAIN = 800 * GBIT / 8  # the configuration of VIA-Research/vTrain: 800 Gbit/s per node
ROCE = 1600 * GBIT / 8  # the README of llm-foundry: 1,600 Gbit/s per node
EFA = 50e9  # 8 × 400 Gbit/s per node of H100
EDR = 100 * GBIT / 8  # one card of 100 Gbit/s per node of V100
ALL = frozenset({"optimizer", "gradients", "parameters"})
OPTIMIZER = frozenset({"optimizer"})


def megatron(path: Path) -> Iterator[Row]:
    """arXiv 2205.05198 and 2104.04473: NVIDIA's own runs."""
    for line in lines(path):
        number = {name: int(line[name]) for name in line if line[name].isdigit()}
        shape = decoder(number["layers"], number["hidden"], number["heads"], number["vocab"], positions=number["seq"])
        batch, dp = number["global_batch"], number["dp"]
        early = "tflops_per_gpu_hw" in line
        setup = Setup(
            layout=Layout(pipeline=number["pp"], replicas=dp, tensor=number["tp"]),
            sequence=number["seq"],
            micro_batch=number["micro_batch"],
            accumulation=batch // (dp * number["micro_batch"]),
            interleave=number["vpp"],
            sequence_parallel=bool(number.get("sequence_parallel", 0)),
            overlapped=line.get("ddp") == "torch",
            tensor_overlapped=not early,
            recompute="full" if early else line["recompute"],  # type: ignore[arg-type]
            attention="unfused",
            precision="fp16",
            dropout=True,
        )
        seconds = float(line["iter_time_s"]) if not early else _sc21_seconds(number, float(line["tflops_per_gpu_hw"]))
        label = f"{line['model']} on {line['n_gpus']}" + ("" if early else f", {line['recompute']}")
        yield Row(
            table=path.stem, label=label, device="a100_80g", stack="megatron", shape=shape, setup=setup,
            network=SELENE, seconds=seconds, group=label,
        )  # fmt: skip


def _sc21_seconds(number: dict[str, int], tflops: float) -> float:
    """Equation 3 of arXiv 2104.04473, solved for the seconds."""
    s, h, l, v = (number[name] for name in ("seq", "hidden", "layers", "vocab"))  # noqa: E741
    flops = 96 * number["global_batch"] * s * l * h**2 * (1 + s / (6 * h) + v / (16 * l * h))
    return flops / (number["n_gpus"] * tflops * 1e12)


def vtrain(path: Path) -> Iterator[Row]:
    """Megatron without overlap: vTrain's ground truth (Megatron-DeepSpeed, A100), DLPerf's (Megatron-LM, V100)."""
    volta = path.stem == "megatron_v100"
    for line in lines(path):
        number = {name: int(line[name]) for name in line if name != "iter_ms"}
        dp, micro = number["dp"], number["micro_batch"]
        vocabulary = -(-50257 // (128 * number["tp"])) * 128 * number["tp"]
        shape = decoder(number["layers"], number["hidden"], number["heads"], vocabulary, positions=number["seq"])
        setup = Setup(
            layout=Layout(pipeline=number["pp"], replicas=dp, tensor=number["tp"]),
            sequence=number["seq"],
            micro_batch=micro,
            accumulation=number["global_batch"] // (dp * micro),
            tensor_overlapped=False,
            recompute="full",
            attention="unfused",
            precision="fp16",
            dropout=True,
        )
        label = " ".join(f"{name}{number[name]}" for name in ("hidden", "layers", "tp", "dp", "pp", "micro_batch"))
        yield Row(
            table=path.stem, label=label, device="v100_32g" if volta else "a100_80g",
            stack="megatron" if volta else "megatron_deepspeed", shape=shape, setup=setup,
            network=EDR if volta else VTRAIN, seconds=float(line["iter_ms"]) / 1e3,
            group=" ".join(line[name] for name in ("hidden", "layers", "n_gpus", "global_batch")),
        )  # fmt: skip


def mosaicml(path: Path) -> Iterator[Row]:
    """MPT with FSDP; rows in fp8 are left out, since no constant for fp8 is fitted."""
    for line in lines(path):
        if "fp8" in line["precision"]:
            continue
        layers, hidden, heads = (int(line[name]) for name in ("n_layers", "d_model", "n_heads"))
        ranks, length = int(line["n_gpus"]), int(line["seq_len"])
        micro, samples = int(line["micro_batch_size"]), int(line["global_batch_size"])
        setup = Setup(
            layout=Layout(shards=ranks),
            sequence=length,
            micro_batch=micro,
            accumulation=samples // (ranks * micro),
            sharded=ALL,
            recompute="full" if line["act_ckpt"] == "True" else "none",
            prefetched=False,  # Composer's default, BACKWARD_POST
            early_stop=True,  # activation_checkpointing_reentrant: false in llm-foundry's recipes
            gradient_bytes=2 if line["mp_mode"] == "PURE" else 4,
            overlapped=True,
        )
        yield Row(
            table=path.stem, label=f"{line['model']} s{length} on {ranks} {line['gpu']}",
            device={"h100_80gb": "h100", "a100_80gb": "a100_80g", "a100_40gb": "a100_40g"}[line["gpu"]],
            stack="composer_fsdp", shape=decoder(layers, hidden, heads, int(line["vocab"])), setup=setup,
            network=EFA if "h100" in line["gpu"] else ROCE,
            seconds=setup.samples * length / float(line["tokens_per_s"]),
            group=" ".join(line[name] for name in ("model", "seq_len", "gpu", "n_gpus")),
        )  # fmt: skip


# The shapes of scripts/scaling_benchmarks.py in huggingface/nanotron at 2411b022a7.
NANOTRON = {
    "1B": decoder(16, 2048, 32, 131072, 8192, gated=True, tied=True),
    "3B": decoder(28, 3072, 32, 131072, 8192, gated=True, tied=True),
    "8B": decoder(32, 4096, 32, 131072, 14336, gated=True, tied=False),
    "80B": decoder(80, 8192, 64, 131072, 28672, gated=True, tied=False),
}


def nanotron_setup(line: dict[str, str]) -> Setup:
    """The layout of one line of the playbook."""
    number = {name: int(line[name]) for name in ("dp", "pp", "tp", "zero", "micro_batch", "accumulation", "seq")}
    return Setup(
        layout=Layout(pipeline=number["pp"], replicas=number["dp"], tensor=number["tp"]),
        sequence=number["seq"],
        micro_batch=number["micro_batch"],
        accumulation=number["accumulation"],
        balanced=True,
        sequence_parallel=number["tp"] > 1,
        sharded=OPTIMIZER if number["zero"] else frozenset(),
        overlapped=True,
        gradient_bytes=4,
    )


def nanotron(path: Path) -> Iterator[Row]:
    """The ultra-scale playbook's layouts that ran."""
    for line in lines(path):
        if line["status"] != "ok":
            continue
        setup = nanotron_setup(line)
        yield Row(
            table=path.stem,
            label=" ".join([line["model"], *(f"{name}{line[name]}" for name in ("dp", "pp", "tp", "zero")),
                            f"b{line['micro_batch']}"]),
            device="h100", stack="nanotron", shape=NANOTRON[line["model"]], setup=setup, network=EFA,
            seconds=setup.samples * setup.sequence / (float(line["tok_s_gpu"]) * setup.ranks),
            group=f"{line['model']} {setup.samples} {line['nodes']}",
        )  # fmt: skip


# config.json of meta-llama/Llama-2-7b to 70b, and of codellama/CodeLlama-34b with its vocabulary of 32,000.
LLAMA2 = {
    "7b": decoder(32, 4096, 32, 32000, 11008, gated=True, tied=False),
    "13b": decoder(40, 5120, 40, 32000, 13824, gated=True, tied=False),
    "34b": decoder(48, 8192, 64, 32000, 22016, kv_heads=8, gated=True, tied=False),
    "70b": decoder(80, 8192, 64, 32000, 28672, kv_heads=8, gated=True, tied=False),
}


def fms(path: Path) -> Iterator[Row]:
    """Llama 2 with FSDP, and with FSDP inside of nodes alone."""
    for line in lines(path):
        ranks, micro, length = (int(line[name]) for name in ("n_gpus", "micro_batch", "seq"))
        shards = 8 if line["sharding"] == "HSDP" else ranks
        setup = Setup(
            layout=Layout(replicas=ranks // shards, shards=shards),
            sequence=length,
            micro_batch=micro,
            sharded=ALL,
            recompute=line["recompute"],  # type: ignore[arg-type]
            early_stop=True,
            overlapped=True,
        )
        yield Row(
            table=path.stem, label=f"{line['version']} {line['model']} on {ranks} {line['device']}",
            device=line["device"], stack="fms_fsdp", shape=LLAMA2[line["model"]], setup=setup,
            network=float(line["node_gbit"]) * GBIT / 8,
            seconds=micro * length / float(line["tokens_per_s_per_gpu"]),
        )  # fmt: skip


# What the cases' model_config.yaml log and scale in every step.
OPTIONS = {
    "clip-grad": costs.MEGATRON_CLIP,
    "log-num-zeros-in-grad": costs.MEGATRON_ZEROS,
    "calculate-per-token-loss": costs.MEGATRON_PER_TOKEN,
    "log-params-norm": costs.MEGATRON_NORM,
}


def goldens(path: Path) -> Iterator[Row]:
    """The nightly tests of Megatron-LM with models of more than 10 billion parameters."""
    devices = {"dgx_a100": "a100_80g", "dgx_h100": "h100", "dgx_gb200": "b200"}
    for line in lines(path):
        number = {name: int(line[name]) for name in line if line[name].isdigit()}
        width = number.get("kv_channels", number["hidden"] // number["heads"])
        stack = Stack(
            layers=number["layers"], hidden=number["hidden"], heads=number["heads"],
            kv_heads=number.get("kv_groups", number["heads"]), head_width=width,
            feed_forward=number.get("ffn", 4 * number["hidden"]),
        )  # fmt: skip
        stacks: tuple[Stack, ...] = (stack,)
        if "decoder_layers" in number:
            read = replace(stack, causal=False)
            stacks = (read, replace(stack, layers=number["decoder_layers"], target=True, source_hidden=stack.hidden))
        shape = Shape(stacks=stacks, vocabulary=number["vocab"], tied=not number["untied"])
        dp = number["world"] // (number["tp"] * number["pp"])
        setup = Setup(
            layout=Layout(pipeline=number["pp"], replicas=dp, tensor=number["tp"]),
            sequence=number["seq"],
            target=number.get("decoder_seq", 0),
            micro_batch=number["micro_batch"],
            accumulation=number["global_batch"] // (dp * number["micro_batch"]),
            interleave=number.get("vpp", 1),
            sequence_parallel=bool(number["sequence_parallel"]),
            sharded=OPTIMIZER if number["distributed_optimizer"] else frozenset(),
            overlapped="overlap-grad-reduce" in line["other_args"],
            tensor_pipelined="tp-comm-overlap" in line["other_args"],
            sends_overlapped="overlap-p2p" in line["other_args"],
            parameter_bytes_moved=0.0,  # gradient_accumulation_fusion, the default: the products add to the sums
            attention=line.get("attention", "flash3"),  # type: ignore[arg-type] # Transformer Engine's choice on Hopper
            gradient_bytes=number.get("gradient_bytes", 4),
            dropout=bool(number.get("dropout", 0)),
            optimizer_bytes=sum(OPTIONS[option] for option in line["step_options"].split(";")) + costs.MEGATRON_ADAM,
        )
        yield Row(
            table=path.stem, label=f"{line['case'].split('/')[1]} {line['platform']}", device=devices[line["platform"]],
            stack="megatron_core", shape=shape, setup=setup, network=SELENE if "a100" in line["platform"] else EFA,
            seconds=float(line["median_s"]),
        )  # fmt: skip


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
}
CALIBRATION = ("vtrain_one_node", "megatron_2205_05198", "mosaicml_8gpu", "nanotron_playbook")
JUDGED = (
    "megatron_sc21", "megatron_goldens", "fms_fsdp", "vtrain_multi_node", "mosaicml_multi_node", "nanotron_multi_node",
    "nemo_dgxc", "megatron_v100",
)  # fmt: skip


def table(name: str) -> list[Row]:
    """The rows of a table of this repository."""
    return list(READERS[name](HERE / f"{name}.csv"))
