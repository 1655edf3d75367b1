"""How the ranks of one cell connect, and how they disconnect."""

import contextlib
import datetime
import os
import re
import time
from collections.abc import Iterable
from pathlib import Path

from perfsuite.catalog.cpu_kernels import why_others
from perfsuite.errors import RankError, Unsupported
from perfsuite.rank.session import Session

RENDEZVOUS = "rendezvous"  # the file with rank 0's address and port
NODE_ADDRESS = "PERFSUITE_NODE_ADDRESS"  # a variable with the address of a rank's node, if there are several
TIMEOUT = datetime.timedelta(minutes=30)  # the launcher's watchdog ends a cell long before


def join(session: Session, folder: Path) -> None:
    """Set the device, the first if the rank has several, and form the default process group.

    Rank 0 binds a port that the system chooses and writes it to a file, so two cells never race for one. The file
    reaches the other nodes as all files of a cell do.
    """
    import torch
    import torch.distributed as dist
    from torch.distributed import TCPStore  # type: ignore[attr-defined]  # documented, but not in __all__

    rank, world_size = session.rank, session.world_size
    if session.job.device == "cuda":
        if torch.cuda._is_in_bad_fork():
            raise RankError("The rank server touched CUDA before it forked: an import of the engine or the model did.")
        torch.cuda.set_device(rank % session.job.node_size * session.job.devices)
        if reason := why_no_kernels(torch.cuda.get_device_capability(), torch.cuda.get_arch_list()):
            raise Unsupported(f"torch {torch.__version__} {reason}")
    else:
        torch.set_num_threads(1)  # a CPU rank is one core on every machine
        as_batch()
        mkldnn = torch.ops.mkldnn
        half_precision = mkldnn._is_mkldnn_bf16_supported() or mkldnn._is_mkldnn_fp16_supported()
        if reason := why_others(session.job.kernels, torch.backends.cpu.get_cpu_capability(), half_precision):
            raise RankError(reason)
    host = _own_address() if session.job.nodes > 1 else "127.0.0.1"
    rendezvous = folder / RENDEZVOUS
    if rank == 0:
        store = TCPStore(host, 0, world_size, True, TIMEOUT, wait_for_workers=False)
        part = folder / f"{RENDEZVOUS}.part"
        part.write_text(f"{host} {store.port}")
        part.rename(rendezvous)
    else:
        host, port = _wait_for(rendezvous).split()
        store = TCPStore(host, int(port), world_size, timeout=TIMEOUT)
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank % session.job.node_size),
        WORLD_SIZE=str(world_size),
        LOCAL_WORLD_SIZE=str(session.job.node_size),
        MASTER_ADDR=host,
        MASTER_PORT=str(store.port),
    )
    backend = "gloo" if session.job.device == "cpu" else "nccl"
    device = session.device if backend == "nccl" else None
    dist.init_process_group(backend, store=store, rank=rank, world_size=world_size, timeout=TIMEOUT, device_id=device)
    session.departure.callback(leave)


def as_batch(thread: int = 0) -> None:
    """Let no thread that wakes up interrupt the one that computes, in this thread and in those that it starts.

    A rank's messages wake threads hundreds of times a step. By default each may interrupt what the rank computes, and
    whether it does is chance: on two cores, steps of two ranks took 1.2 to 2.7 times as long and spread by 8 to 16 %,
    of which this leaves 4 to 6 (sched(7), SCHED_BATCH). Another policy, such as that of ``chrt --idle``, is the user's.
    """
    with contextlib.suppress(AttributeError, OSError):  # not Linux; not allowed
        if os.sched_getscheduler(thread) == os.SCHED_OTHER:
            os.sched_setscheduler(thread, os.SCHED_BATCH, os.sched_param(0))


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


def _own_address() -> str:
    """This node's, as the other nodes reach it; gloo then uses its interface."""
    import psutil

    address = os.environ[NODE_ADDRESS]
    for name, known in psutil.net_if_addrs().items():
        if any(one.address == address for one in known):
            os.environ["GLOO_SOCKET_IFNAME"] = name
    return address


def _wait_for(path: Path) -> str:
    deadline = time.monotonic() + TIMEOUT.total_seconds()
    while not path.exists():
        if time.monotonic() > deadline:
            raise RankError(f"Rank 0 did not write {path.name} within {TIMEOUT}.")
        time.sleep(0.002)
    return path.read_text()
