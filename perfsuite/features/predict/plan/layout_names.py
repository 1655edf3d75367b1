"""A layout in words, as the planner prints it and ``--layout`` takes it: ``tp8 pp12 dp4 v2 b1 ckpt zero1``."""

import re
from typing import Any

from perfsuite.catalog.definitions import Layout
from perfsuite.errors import UsageError
from perfsuite.features.predict.time.setup import Setup

OPTIMIZER = frozenset({"optimizer"})
GRADIENTS = frozenset({"optimizer", "gradients"})
ALL = frozenset({"optimizer", "gradients", "parameters"})
SHARDED = {"zero1": OPTIMIZER, "zero2": GRADIENTS, "zero3": ALL}
RECOMPUTE = {
    "ckpt": "full",
    "ckpt_selective": "selective",
    "ckpt_pointwise": "pointwise",
    "ckpt_mlp": "feed_forward",
    "ckpt_operators": "operators",
}
NUMBERS = ("tp", "pp", "dp", "cp", "ep", "etp", "v", "b", "shard")
OTHERS = "A plan knows no other techniques: `perfsuite memory` and `perfsuite time --predict` trace a cell with one"
WORDS = f"{', '.join(f'{number}N' for number in NUMBERS)}, {', '.join([*RECOMPUTE, 'ckptN%', *SHARDED])}, offload"


def name_of(setup: Setup) -> str:
    """A layout in words: widths, chunks, micro-batch, recomputation, what is divided and over how many ranks."""
    layout = setup.layout
    words = [f"tp{layout.tensor}", f"pp{layout.pipeline}", f"dp{layout.data_ranks}"]
    numbers = (("cp", setup.context), ("ep", setup.experts), ("etp", setup.expert_tensor), ("v", setup.interleave))
    words += [f"{name}{number}" for name, number in numbers if number > 1]
    words.append(f"b{setup.micro_batch}")
    if setup.recompute != "none":
        name = {kind: word for word, kind in RECOMPUTE.items()}[setup.recompute]
        words.append(name if setup.recompute_share == 1 else f"ckpt{setup.recompute_share * 100:g}%")
    words += [word for word, sharded in SHARDED.items() if sharded == setup.sharded]
    words += [f"shard{layout.shards}"] if layout.replicas > 1 and layout.shards > 1 else []
    return " ".join([*words, *(["offload"] if setup.offload else [])])


def fields_of(text: str, samples: int) -> dict[str, Any]:
    """The fields of a Setup that a layout's words say, for a global batch of so many samples.

    Raises UsageError for a word that is unknown, and for a batch that its ranks do not divide.
    """
    number = dict.fromkeys(NUMBERS, 1)
    found: dict[str, Any] = {}
    said: dict[str, str] = {}  # the words, by what they set
    for word in text.split():
        if match := re.fullmatch(rf"({'|'.join(NUMBERS)})([1-9]\d*)", word):
            sets, number[match[1]] = match[1], int(match[2])
        elif word in SHARDED:
            sets, found["sharded"] = "sharded", SHARDED[word]
        elif word in RECOMPUTE:
            sets, found["recompute"] = "recompute", RECOMPUTE[word]
        elif match := re.fullmatch(r"ckpt(\d+\.?\d*)%", word):
            sets, share = "recompute", float(match[1]) / 100
            if not 0 < share <= 1:
                raise UsageError(
                    f"--layout has {word!r}: it recomputes some layers, so more than 0 % and at most 100 %."
                )
            found |= {"recompute": "full", "recompute_share": share}
        elif word == "offload":
            sets, found["offload"] = "offload", True
        else:
            raise UsageError(f"--layout has the word {word!r}: known are {WORDS}. {OTHERS}.")
        if sets in said:
            raise UsageError(f"--layout has both {said[sets]!r} and {word!r}: leave out one of them.")
        said[sets] = word
    ranks, micro = number["dp"], number["b"]
    if samples % (ranks * micro):
        raise UsageError(f"--layout {text!r} divides no batch of {samples}: dp{ranks} times b{micro} must divide it.")
    shards = number["shard"] if number["shard"] > 1 else ranks if found.get("sharded") == ALL else 1
    if ranks % shards:
        raise UsageError(f"--layout {text!r} has dp{ranks}, which shard{shards} must divide.")
    layout = Layout(pipeline=number["pp"], replicas=ranks // shards, shards=shards, tensor=number["tp"])
    return found | {
        "layout": layout,
        "context": number["cp"],
        "experts": number["ep"],
        "expert_tensor": number["etp"],
        "interleave": number["v"],
        "micro_batch": micro,
        "accumulation": samples // (ranks * micro),
    }
