"""Adam's first update of bf16 weights without ZeRO, by its learning rate: 1 is right.

pip install torch deepspeed==0.17.6
python deepspeed_bf16_alone.py
"""

import os

os.environ |= {"DS_ACCELERATOR": "cpu", "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
import deepspeed
import torch

deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # else it is compiled, for minutes
LEARNING_RATE = 0.125
torch.manual_seed(0)
model = torch.nn.Linear(16, 1, bias=False)
torch.nn.init.zeros_(model.weight)
optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
config = {
    "train_micro_batch_size_per_gpu": 4,
    "bf16": {"enabled": True},
    "gradient_clipping": 0.0,
    "zero_allow_untested_optimizer": True,
}
engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
engine.backward(engine(torch.ones(4, 16, dtype=torch.bfloat16)).sum())
engine.step()
print(f"deepspeed {deepspeed.__version__}: {model.weight.abs().max().item() / LEARNING_RATE:.3f}")
