"""gpt2_tiny under ZeRO-3 as a DeepSpeed user writes it, with the samples, config and seeds of perfsuite's own cell.

``torchrun --nproc-per-node 2 zero3_by_hand.py STEPS``
"""

import sys

import deepspeed
import torch
import transformers

from perfsuite.catalog.registry import Catalog
from perfsuite.rank.batches import seed_of
from perfsuite.rank.tasks import make_batch, next_tokens

ROWS = 2  # of each rank
CONFIG = {
    "train_micro_batch_size_per_gpu": ROWS,
    "zero_optimization": {
        "stage": 3,
        "reduce_bucket_size": 64 * 64,
        "stage3_prefetch_bucket_size": int(0.9 * 64 * 64),
        "stage3_param_persistence_threshold": 10 * 64,
    },
    "zero_allow_untested_optimizer": True,
    "zero_force_ds_cpu_optimizer": False,
    "steps_per_print": 2**31,
}

deepspeed.init_distributed("gloo")
rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
gpt2 = Catalog().get("model", "gpt2_tiny")
torch.manual_seed(0)
net = transformers.GPT2LMHeadModel._from_config(transformers.GPT2Config(**gpt2.config)).train()
adamw = torch.optim.AdamW(net.parameters(), lr=5e-5)
model, *_ = deepspeed.initialize(model=net, optimizer=adamw, config=CONFIG)
torch.manual_seed(1 + rank)


def train(batch: dict[str, torch.Tensor], weight: float) -> torch.Tensor:
    """One step. Returns its loss, which lives until the next step returns its own, as in most loops."""
    total = torch.zeros(())
    loss = model(**batch).loss * weight
    total += loss.detach()
    model.backward(loss)
    del loss
    model.step()
    return total


for step in range(int(sys.argv[1])):
    seeds = [seed_of(0, step, number) for number in range(ranks * ROWS)]
    batches = [make_batch(gpt2, seeds[at : at + ROWS]) for at in range(0, ranks * ROWS, ROWS)]
    labels = [next_tokens(one) for one in batches]
    batch = {name: torch.tensor(one) for name, one in batches[rank].items()}
    loss = train(batch, labels[rank] * ranks / sum(labels))  # the mean over the labels of all ranks
