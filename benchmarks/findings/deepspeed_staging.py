"""Python calls of one all-reduce through deepspeed.comm.

pip install torch deepspeed==0.19.6
python deepspeed_staging.py
"""

import os
import sys

os.environ |= {"DS_ACCELERATOR": "cpu", "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
import deepspeed
import torch

deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # else it is compiled, for minutes
deepspeed.init_distributed("gloo")
tensor = torch.ones(8)
deepspeed.comm.all_reduce(tensor)
calls = 0


def count(frame: object, event: str, argument: object) -> None:
    """One more, if a function of Python begins."""
    global calls
    calls += event == "call"


sys.setprofile(count)
deepspeed.comm.all_reduce(tensor)
sys.setprofile(None)
print(f"deepspeed {deepspeed.__version__}: {calls}")
