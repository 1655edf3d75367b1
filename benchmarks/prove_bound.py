"""How often is a right script called wrong by perfsuite prove? Writes docs/data/prove/bound.csv.

    python benchmarks/prove_bound.py            # four minutes of a core

Each of eight models has a gradient of the same batches in three right ways: rows in another order, two micro-batches,
and one row at a time. Each way is compared with a bound, as a relation does: ALLOWED times what rounding of one seed
changes. Orders and seeds are drawn anew for each comparison. An interval is Wilson's, of 95 %.
"""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from result_tables import write_table

from perfsuite.features.prove.relations._changes import rounding_of
from perfsuite.features.prove.relations._compared import ALLOWED, STEPS, relative
from perfsuite.features.prove.relations._sketches import sketch

TIMES = 40  # comparisons of a model
PARTS = (8, 4, 1)  # rows of a micro-batch
ROWS, TOKENS, VOCABULARY = 8, 16, 64
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": VOCABULARY}
GATED = SIZES | {"intermediate_size": 64, "num_key_value_heads": 2, "attn_implementation": "eager"}
Gradient = dict[str, list[float]]
Way = Callable[[Any], list[Any]]  # from the rows of a step to its micro-batches


def models(torch: Any) -> Iterator[tuple[str, Any, Any]]:
    """The name of each model, the model without dropout, and its dtype of computation."""
    from transformers import (
        BertConfig,
        BertForMaskedLM,
        GPT2Config,
        GPT2LMHeadModel,
        LlamaConfig,
        LlamaForCausalLM,
        Qwen2Config,
        Qwen2ForCausalLM,
    )

    no_dropout = {"attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}
    gpt2 = GPT2Config(vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=2, n_positions=TOKENS, **no_dropout)
    bert = BertConfig(intermediate_size=64, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **SIZES)
    yield "gpt2", GPT2LMHeadModel(gpt2), torch.float32
    yield "llama", LlamaForCausalLM(LlamaConfig(**GATED)), torch.float32
    yield "qwen2", Qwen2ForCausalLM(Qwen2Config(**GATED)), torch.float32
    yield "bert", BertForMaskedLM(bert), torch.float32
    yield "gpt2 in bfloat16", GPT2LMHeadModel(gpt2), torch.bfloat16
    yield "llama in bfloat16", LlamaForCausalLM(LlamaConfig(**GATED)), torch.bfloat16
    yield "llama of 6 layers", LlamaForCausalLM(LlamaConfig(**GATED | {"num_hidden_layers": 6})), torch.float32
    yield "gpt2 in float16", GPT2LMHeadModel(gpt2), torch.float16


def shuffled(torch: Any, part: int, ids: Any) -> list[Any]:
    """The rows in another order, as micro-batches of so many."""
    return list(ids[torch.randperm(ROWS)].split(part))


def gradient(torch: Any, model: Any, dtype: Any, parts: Sequence[Any]) -> Gradient:
    """Of the mean over all rows of the parts, which are equally long."""
    model.zero_grad()
    for ids in parts:
        with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
            loss = model(input_ids=ids, labels=ids).loss
        (loss * len(ids) / ROWS).backward()
    return {name: sketch(one.grad) for name, one in model.named_parameters() if one.grad is not None}


def distance(one: Sequence[Gradient], other: Sequence[Gradient]) -> float:
    """The root mean square over the steps, as relations compare them."""
    shares = [relative(*two)[0] for two in zip(one, other, strict=True)]
    return math.sqrt(sum(share * share for share in shares) / len(shares))


def wilson(count: int, of: int) -> tuple[float, float]:
    """The interval of a share (Wilson 1927), at 95 %."""
    z = 1.96
    middle, spread = count + z * z / 2, z * math.sqrt(count * (of - count) / of + z * z / 4)
    return max(0.0, (middle - spread) / (of + z * z)), min(1.0, (middle + spread) / (of + z * z))


def main() -> None:
    """Measure all models."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows: list[list[Any]] = []
    total = [0, 0]
    for name, model, dtype in models(torch):
        model.train()
        batches = torch.randint(VOCABULARY, (STEPS, ROWS, TOKENS))

        def all_steps(
            way: Callable[[Any], list[Any]], model: Any = model, dtype: Any = dtype, of: Any = batches
        ) -> Any:
            return [gradient(torch, model, dtype, way(ids)) for ids in of]

        own = all_steps(lambda ids: [ids])
        broken, largest = 0, 0.0
        for seed in range(TIMES):
            with rounding_of(torch, seed):
                known = distance(own, all_steps(lambda ids: [ids.flip(0)]))
            bound = ALLOWED * max(known, torch.finfo(dtype).eps / 2)
            share = distance(own, all_steps(functools.partial(shuffled, torch, PARTS[seed % len(PARTS)]))) / bound
            broken, largest = broken + (share > 1), max(largest, share)
        total = [total[0] + broken, total[1] + TIMES]
        low, high = wilson(broken, TIMES)
        rows.append([name, broken, TIMES, f"{low:.1%} to {high:.1%}", f"{largest:.2f}"])
        print(*rows[-1], flush=True)
    low, high = wilson(*total)
    rows.append(["all", *total, f"{low:.1%} to {high:.1%}", max(row[-1] for row in rows)])
    write_table("prove/bound", ["model", "called wrong", "of", "interval", "largest share of the bound"], rows)


if __name__ == "__main__":
    main()
