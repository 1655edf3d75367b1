"""When and where a script begins to use CUDA. Until then nothing may touch a device: it may fork, or choose another."""

import functools
import os
import time
from collections.abc import Callable, Collection
from typing import Any
from unittest import mock

from perfsuite.errors import RankError
from perfsuite.rank.session import Session

WATCHDOG_SECONDS = 0.3  # NCCL's looks every 0.1
LOCAL_RANK = "LOCAL_RANK"  # launchers set it


def begin_with_cuda(torch: Any, begin: Callable[[], None]) -> None:
    """Call ``begin`` once, on the script's device, before its first tensor there."""
    cuda = torch.cuda
    chosen: list[int] = []

    def beginning() -> None:
        own = int(os.environ.get(LOCAL_RANK, "-1"))
        device = chosen[-1] if chosen else own if 0 <= own < cuda.device_count() else cuda.current_device()
        # torch calls this at the end of its initialization, before which it does not answer questions about memory.
        with mock.patch.object(cuda, "_initialized", True), cuda.device(device):
            begin()

    def watch_choice(owner: Any, name: str) -> None:
        choose = getattr(owner, name)

        @functools.wraps(choose)
        def choosing(device: Any) -> None:
            index = torch.device(device).index if isinstance(device, str) else getattr(device, "index", device)
            chosen.extend([index] * isinstance(index, int))
            choose(device)

        setattr(owner, name, choosing)

    watch_choice(cuda, "set_device")
    if hasattr(torch, "accelerator"):
        watch_choice(torch.accelerator, "set_device_index")
    cuda._lazy_call(beginning)


def check_device(session: Session, devices: Collection[str], begun_on: str) -> None:
    """Raise RankError if the modules are on another device than the cell names, or than memory was watched on."""
    kinds = {device.partition(":")[0] for device in devices}
    if kinds and session.job.device not in kinds:
        raise RankError(
            f"The script trains on {min(kinds)}, but its cell is on {session.job.device}: name its hardware, such as "
            "cpu_x1."
        )
    there = sorted(device for device in devices if device.startswith("cuda"))
    if len(there) > 1:
        raise RankError(
            f"Rank {session.rank} trains on {' and '.join(there)}, and perfsuite measures one device of each rank: let "
            "a launcher, such as torchrun, give each rank its own."
        )
    if there and there[0] != begun_on:
        raise RankError(
            f"Rank {session.rank} began on {begun_on}, where its memory is watched, and trains on {there[0]}: call "
            "torch.cuda.set_device first."
        )


def settle_on(torch: Any, device: str) -> None:
    """Make the script's device the current one, where meters look: it may name it with each tensor instead. And wait
    until NCCL's watchdog no longer holds the tensors of messages that are done.
    """
    torch.cuda.set_device(device)
    torch.cuda.synchronize()
    time.sleep(WATCHDOG_SECONDS)
