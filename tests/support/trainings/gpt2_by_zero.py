"""A GPT-2 by DeepSpeed's ZeRO-2, with its own loader, scheduler and accumulation."""

import argparse

import deepspeed
import torch
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler
from transformers import GPT2Config, GPT2LMHeadModel

parser = argparse.ArgumentParser()
parser.add_argument("--train_micro_batch_size_per_gpu", type=int, default=4)
parser.add_argument("--gradient_accumulation_steps", type=int, default=2)
parser.add_argument("--stage", type=int, default=2)
parser.add_argument("--resume_from", default="")
options = parser.parse_args()
deepspeed.init_distributed("gloo")
torch.manual_seed(0)
batch, accumulate = options.train_micro_batch_size_per_gpu, options.gradient_accumulation_steps
ds_config = {
    "train_micro_batch_size_per_gpu": batch,
    "gradient_accumulation_steps": accumulate,
    "zero_optimization": {"stage": options.stage},
    "gradient_clipping": 1.0,
    "zero_allow_untested_optimizer": True,
}
config = GPT2Config(
    vocab_size=96, n_positions=32, n_embd=32, n_layer=2, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0
)
model = GPT2LMHeadModel(config)
data = TensorDataset(torch.randint(96, (128, 20), generator=torch.Generator().manual_seed(1)))
inner = torch.optim.AdamW(model.parameters(), 1e-3)
scheduler = torch.optim.lr_scheduler.LambdaLR(inner, lambda step: min(1.0, (step + 1) / 5))
engine, *_ = deepspeed.initialize(model=model, optimizer=inner, lr_scheduler=scheduler, config=ds_config)
sampler = DistributedSampler(data, seed=0)
loader = DataLoader(data, batch, sampler=sampler)
start = 0
if options.resume_from:
    engine.load_checkpoint(options.resume_from)
    start = 1
for epoch in range(start, 4):
    sampler.set_epoch(epoch)
    for (ids,) in loader:
        loss = engine(input_ids=ids, labels=ids).loss
        engine.backward(loss)
        engine.step()
    if epoch == 0:
        engine.save_checkpoint("out")
