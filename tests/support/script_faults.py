"""Faults beside scripts of others, which stay as they are: a ``sitecustomize.py`` of the user's, in a folder on
PYTHONPATH, acts behind each step of a torch optimizer.
"""

MORE_BYTES = 64 * 1024
SLOWER = 0.1  # of a step
FAULTS = {
    "memory": f"kept or kept.append(torch.zeros({MORE_BYTES // 4}))",
    "leak": "kept.append(torch.zeros(1))",
    "collective": "torch.distributed.all_reduce(torch.zeros(1))",
    "delay": "work({seconds})",  # no sleep: a busy machine makes that a smaller share of a step
}
HOOK = """
import time
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

def work(seconds):
    # so long, and in a longer step by the same share
    global before
    now = time.thread_time()
    before = now + max(seconds, {share} * (now - before))
    while time.thread_time() < before:
        pass

before = time.thread_time()
kept = []
register_optimizer_step_post_hook(lambda *_: {act} and None)
"""


def hook(fault: str, seconds: float = 0.0) -> str:
    """The text of that file; ``seconds`` is how long a delay is."""
    return HOOK.format(share=SLOWER, act=FAULTS[fault].format(seconds=seconds))
