"""How the ranks of one cell connect, and how they disconnect."""

from __future__ import annotations

import datetime
import os
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from perfsuite.errors import RankError, Unsupported
from perfsuite.kernels import why_others

if TYPE_CHECKING:
    from perfsuite.rank.session import Session

TIMEOUT = datetime.timedelta(minutes=30)  # the launcher's watchdog ends a cell long before


def join(session: Session, folder: Path) -> None:
    """Set the device and form the default process group.

    Rank 0 binds a port that the system chooses and writes it to a file, so two cells never race for one.
    """
    import torch
    import torch.distributed as dist
    from torch.distributed import TCPStore  # type: ignore[attr-defined]  # documented, but not in __all__

    rank, world_size = session.rank, session.world_size
    if session.job.device == "cuda":
        if torch.cuda._is_in_bad_fork():
            raise RankError("The rank server touched CUDA before it forked: an import of the engine or the model did.")
        torch.cuda.set_device(rank)
        if reason := why_no_kernels(torch.cuda.get_device_capability(), torch.cuda.get_arch_list()):
            raise Unsupported(f"torch {torch.__version__} {reason}")
    else:
        torch.set_num_threads(1)  # a CPU rank is one core on every machine
        mkldnn = torch.ops.mkldnn
        half_precision = mkldnn._is_mkldnn_bf16_supported() or mkldnn._is_mkldnn_fp16_supported()
        if reason := why_others(session.job.kernels, torch.backends.cpu.get_cpu_capability(), half_precision):
            raise RankError(reason)
    port_file = folder / "port"
    if rank == 0:
        store = TCPStore("127.0.0.1", 0, world_size, True, TIMEOUT, wait_for_workers=False)
        part = folder / "port.part"
        part.write_text(str(store.port))
        part.rename(port_file)
    else:
        store = TCPStore("127.0.0.1", _wait_for(port_file), world_size, timeout=TIMEOUT)
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(world_size),
        LOCAL_WORLD_SIZE=str(world_size),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=port_file.read_text(),
    )
    backend = "gloo" if session.job.device == "cpu" else "nccl"
    device = session.device if backend == "nccl" else None
    dist.init_process_group(backend, store=store, rank=rank, world_size=world_size, timeout=TIMEOUT, device_id=device)


def why_no_kernels(capability: tuple[int, int], built: Iterable[str]) -> str:
    """Why a torch with kernels for ``built`` ("sm_90", or "compute_90" that the driver compiles) has none for a device;
    empty if it has. Kernels run on devices of the same major capability and a minor one that is not lower (CUDA C++
    programming guide, binary compatibility), others would fail with "no kernel image is available".
    """
    major, minor = capability
    known = [re.fullmatch(r"(sm|compute)_(\d+)(\d)[a-z]?", one) for one in built]
    there = [(one[1], int(one[2]), int(one[3])) for one in known if one]
    runs = any((kind == "compute" or major == of) and (of, least) <= (major, minor) for kind, of, least in there)
    names = ", ".join(f"{of}.{least}" for _, of, least in there)
    return "" if runs else f"has kernels for compute capability {names or 'none'}, but this device has {major}.{minor}."


def leave() -> None:
    """Disconnect in order: no rank's sockets close while another still computes."""
    import torch.distributed as dist

    if dist.get_world_size() > 1:
        dist.barrier()
    dist.destroy_process_group()


def _wait_for(path: Path) -> int:
    deadline = time.monotonic() + TIMEOUT.total_seconds()
    while not path.exists():
        if time.monotonic() > deadline:
            raise RankError(f"Rank 0 did not write {path.name} within {TIMEOUT}.")
        time.sleep(0.002)
    return int(path.read_text())
