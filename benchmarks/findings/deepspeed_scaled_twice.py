"""Gradients of a transformers model that DeepSpeed accumulates, by those of torch: 1 is right.

pip install torch transformers deepspeed==0.18.6
python deepspeed_scaled_twice.py
"""

import os

os.environ |= {"DS_ACCELERATOR": "cpu", "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
import deepspeed
import torch
from transformers import GPT2Config, GPT2LMHeadModel

deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # else it is compiled, for minutes
PARTS = 4
torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=32, n_head=2, vocab_size=64, n_positions=32))
for module in model.modules():
    if isinstance(module, torch.nn.Dropout):
        module.p = 0.0
rows = torch.randint(64, (2, 16))
model(input_ids=rows, labels=rows).loss.backward()
right = torch.stack([one.grad.norm() for one in model.parameters()]).norm().item()
model.zero_grad()
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
config = {
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": PARTS,
    "gradient_clipping": 0.0,
    "zero_allow_untested_optimizer": True,
}
engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config | {"zero_optimization": {"stage": 1}})
before = [one.detach().clone() for one in model.parameters()]
for _ in range(PARTS):  # the same rows each time, so their mean is that of one
    engine.backward(engine(input_ids=rows, labels=rows).loss)
    engine.step()
moved = torch.stack([(one - old).norm() for one, old in zip(model.parameters(), before, strict=True)]).norm().item()
print(f"deepspeed {deepspeed.__version__}: {moved / right:.3f}")
