"""What gloo's threads do while a rank goes on must not decide what its memory is."""

import json
import subprocess
import sys

import pytest

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")
SCRIPT = """
import contextlib, json, os, sys, time
import torch, torch.distributed as dist
from perfsuite.rank.memory.cpu_allocator import CpuAllocator

folder, ends = sys.argv[1], sys.argv[2] == "ends"
rank = 1 - bool(os.fork())
allocator = CpuAllocator()
dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
mine, both, half = torch.full((64,), rank + 1.0), torch.zeros(128), torch.zeros(64)
dist.barrier()
works = {
    "all_reduce": (mine, lambda: dist.all_reduce(mine, async_op=True)),
    "all_gather": (both, lambda: dist.all_gather_into_tensor(both, mine, async_op=True)),
    "reduce_scatter": (half, lambda: dist.reduce_scatter_tensor(half, both, async_op=True)),
    "broadcast": (half, lambda: dist.broadcast(half, 1, async_op=True)),
}
found = {}
def await_other(name):
    # Rank 0 has gone on after it has started that; where it cannot, it has had time to.
    limit = time.monotonic() + (0.5 if ends and name != "message" else 60)
    while not os.path.exists(f"{folder}/{name}") and time.monotonic() < limit:
        time.sleep(0.01)
def go_on(name):
    if rank == 0:
        open(f"{folder}/{name}", "w").close()
with allocator.settled() if ends else contextlib.nullcontext():
    for name, (result, start) in works.items():
        if rank:
            await_other(name)
            result += 1.0
        work = start()
        before, live = result.tolist(), allocator.live_bytes
        go_on(name)
        work.wait()
        found[name] = before == result.tolist(), live - allocator.live_bytes
        del work
    if rank:
        await_other("message")
        dist.send(mine, 0)
    else:
        work = dist.irecv(half, 1)
        found["message"] = work.is_completed(), 0
        go_on("message")
        work.wait()
if rank == 0:
    print(json.dumps(found))
sys.stdout.flush()
os._exit(0)
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Whether each kind of work is done when its call returns, although the other rank is late, and the bytes that it
    gives back by the end; where collectives end before the rank goes on, and where they do not.
    """

    def run(how):
        folder = tmp_path_factory.mktemp(how)
        command = [sys.executable, "-c", SCRIPT, folder, how]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
        return json.loads(done.stdout)

    return {how: run(how) for how in ("ends", "overlaps")}


@pytest.mark.parametrize("name", COLLECTIVES)
def test_a_collective_of_a_recorded_step_has_ended_when_its_call_returns(found, name):
    """However late the other rank is; gloo's copies are gone by then."""
    assert found["ends"][name] == [True, 0]


def test_without_that_a_collective_overlaps_with_what_the_rank_does_next(found):
    """As in the timed steps, which are the engine's own."""
    assert not any(found["overlaps"][name][0] for name in COLLECTIVES)


def test_a_message_is_not_waited_for(found):
    """Two ranks that send to each other would wait for ever."""
    assert found["ends"]["message"][0] is False
