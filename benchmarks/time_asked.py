"""Reader of the tables whose rows are questions to ``perfsuite plan``: a model, a layout in words, and options."""

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from time_recent import NETWORKS, NODES
from time_rows import CATALOG, Row, lines
from time_words import EFA, GBIT, SELENE

from perfsuite.features.predict.plan.planned import planned
from perfsuite.features.predict.time.shape import Shape

# Models that neither the catalog nor transformers has, by the options of the command line: their parameters files.
OWN = {
    "grok_1": {
        "layers": 64, "hidden": 6144, "heads": 48, "kv_heads": 8, "vocab": 131072, "experts": 8, "experts_per_token": 2,
        "expert_ffn": 32768, "gated": 1,
    },  # xai-org/grok-1
    "internlm_7b": {
        "layers": 32, "hidden": 4096, "heads": 32, "vocab": 103168, "ffn": 11008, "gated": 1,
    },  # InternLM/InternEvo
}  # fmt: skip
DEFAULT_NETWORKS = {"a100_80g": SELENE, "a100_40g": SELENE}


@lru_cache
def shape_named(name: str, layers: int = 0, later: int = 0) -> Shape:
    """The shape of a named model, with so many layers of the last kind (0: its own), and heads for later tokens."""
    found = planned(name, CATALOG, OWN.get(name, {})).shape
    if layers:
        first = sum(stack.layers for stack in found.stacks[:-1])
        found = replace(found, stacks=(*found.stacks[:-1], replace(found.stacks[-1], layers=layers - first)))
    return replace(found, extra=later)


def asked(path: Path) -> Iterator[Row]:
    """The rows of a table of questions; their seconds are given, or follow from tokens per second and device."""
    for line in lines(path):
        length, batch, ranks = int(line["seq"]), int(line["batch"]), int(line["n_gpus"])
        device = line["device"]
        network = DEFAULT_NETWORKS.get(device, NETWORKS.get(device, EFA))
        rate = line.get("tokens_per_s_per_gpu")
        seconds = batch * length / (ranks * float(rate)) if rate else float(line["seconds"])
        yield Row(
            table=path.stem, label=line["label"], device=device, node=int(line["node"] or NODES.get(device, 8)),
            stack=line["stack"], shape=shape_named(line["model"], int(line["layers"] or 0), int(line.get("mtp") or 0)),
            layout=line["layout"], sequence=length, batch=batch, precision=line["precision"],
            options=dict(one.split("=") for one in line["options"].split()),
            network=float(line["network_gbit"]) * GBIT if line["network_gbit"] else network, seconds=seconds,
            family=line["model"], release=line.get("release", ""),
        )  # fmt: skip
