"""What every rank of DeepSpeed's engines imports sooner or later, for the rank server to do it once, before it forks.

ZeRO looks in its first step whether the optimizer is Muon, whose module imports torch's compiler: seconds, in every
rank. And on a CPU DeepSpeed's process group builds an extension, a minute long, for ``inference_all_reduce`` alone:
marked as not to be had, that is the process group's own all-reduce (deepspeed/comm/torch.py), and training, which does
not call it, is the same.
"""

import contextlib

import deepspeed

with contextlib.suppress(ImportError):  # releases before Muon
    import deepspeed.runtime.zero.muon.muon_optimizer

deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
