"""Live bytes from the history of CUDA's caching allocator, event by event, checked against its snapshot."""

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from perfsuite.errors import RankError
from perfsuite.rank.memory.oom import REFUSED
from perfsuite.rank.memory.source import MemorySource

PAGE = 2 * 2**20  # bytes
SIGN = (509, 503)  # bytes of the two blocks that encode a mark: sizes that tensors hardly have


class CudaHistory(MemorySource):
    """The CUDA caching allocator of a rank's devices: one of the process, with a DeviceHistory of each device. Its own
    numbers are the sums over them. With ``stacks`` the snapshot has the Python stack of every allocation.
    """

    def __init__(self, devices: Sequence[int] = (), stacks: bool = False) -> None:
        import torch

        self._stacks = stacks
        self._memory = torch.cuda.memory
        self._snapshot: dict[str, Any] = {}
        self._each = [DeviceHistory(device) for device in devices or [torch.cuda.current_device()]]

    @property
    def each(self) -> "Sequence[DeviceHistory]":
        return self._each

    def record(self, on: bool) -> None:
        if on:
            snapshot = self._memory._snapshot()
            for one in self.each:
                one.begin(snapshot)
            context = "all" if self._stacks else None
            self._memory._record_memory_history(max_entries=10_000_000, stacks="python", context=context)
            return
        for one in self.each:
            one.wait()
        snapshot = self._memory._snapshot()
        self._memory._record_memory_history(enabled=None)
        for one in self.each:
            one.end(snapshot)
        self._snapshot = snapshot if self._stacks else {}

    def mark(self, number: int) -> None:
        """Into each history."""
        for one in self.each:
            one.mark(number)

    def reset_peak(self) -> None:
        """What building left in the cache is returned first, as in a prediction: only steps count."""
        for one in self.each:
            one.reset_peak()

    @property
    def peak_bytes(self) -> int:
        return sum(one.peak_bytes for one in self.each)

    @property
    def live_bytes(self) -> int:
        return sum(one.live_bytes for one in self.each)

    @property
    def reserved_bytes(self) -> int:
        return sum(one.reserved_bytes for one in self.each)

    @property
    def free_bytes(self) -> int:
        return sum(one.free_bytes for one in self.each)

    def set_capacity(self, capacity_bytes: int | None) -> None:
        """Of each device."""
        for one in self.each:
            one.set_capacity(capacity_bytes)

    def snapshot(self) -> dict[str, Any] | None:
        """torch's own, of all devices."""
        return self._snapshot


class DeviceHistory:
    """One device. The peak is that of its history of requested sizes, since the allocator's own
    statistics count a block on another stream until that stream has passed. Its end is checked against its snapshot.

    The history names neither operators nor modules, and nothing need be waited for: the allocator frees in the order of
    the stream. It is not known how much was missing, since the allocator has blocks that are free, but too small.
    Collectives are not in the history, so their buffers cannot be distinguished from other blocks. cuBLAS' workspaces
    come from the same allocator, one for the thread of forward and one for that of backward. They are made before
    everything else and count nowhere, neither in the history nor in what is reserved nor in a capacity: they are not
    tensors, and a prediction counts them separately.
    """

    def __init__(self, device: int) -> None:
        import torch

        self._cuda = torch.cuda
        self._device = device
        self._marks: list[int] = []
        self._events: list[tuple[int, int, str]] = []
        self._times: list[int] = []
        self._before = 0  # bytes alive when the history begins
        self._workspaces = make_workspaces(device)

    def begin(self, snapshot: Mapping[str, Any]) -> None:
        """The history begins."""
        self._before = self._requested(snapshot)

    def wait(self) -> None:
        """Until all work is done."""
        self._cuda.synchronize(self._device)

    def end(self, snapshot: Mapping[str, Any]) -> None:
        """The history is in the snapshot. Raises RankError if the two differ."""
        trace = snapshot["device_traces"][self._device]
        self._events, self._times = read_history(trace, self._marks)
        logged = sum(size for at, size, _ in self.events() if at != -1)
        alive = self._requested(snapshot) - self._before
        if logged != alive:
            raise RankError(f"CUDA's memory history ends with {logged:,} bytes alive, its snapshot with {alive:,}.")

    def _requested(self, snapshot: Mapping[str, Any]) -> int:
        """The bytes of this device's blocks that are in use."""
        segments = (segment for segment in snapshot["segments"] if segment["device"] == self._device)
        blocks = (block for segment in segments for block in segment["blocks"] if block["state"] == "active_allocated")
        return sum(block["requested_size"] for block in blocks)

    def mark(self, number: int) -> None:
        """Into the history itself, as two odd blocks, one within the other: its times are of another clock."""
        self.wait()
        self._marks.append(number)
        blocks = [self._cuda.caching_allocator_alloc(size, self._device) for size in SIGN]
        for block in reversed(blocks):
            self._cuda.caching_allocator_delete(block)

    def reset_peak(self) -> None:
        """Return to the device what is cached, and begin anew."""
        self.wait()
        self._cuda.empty_cache()
        self._cuda.reset_peak_memory_stats(self._device)

    @property
    def peak_bytes(self) -> int:
        """The most bytes that were allocated."""
        return int(self._cuda.memory_stats(self._device)["allocated_bytes.all.peak"])

    @property
    def live_bytes(self) -> int:
        """Bytes that are allocated."""
        return int(self._cuda.memory_stats(self._device)["allocated_bytes.all.current"])

    def prove_peak(self, of_events: int, counted: int) -> None:
        """Live tensors can need less than the allocator's blocks, which it rounds and keeps for streams; never more."""
        if not 0 < of_events <= counted:
            raise RankError(f"CUDA's memory history peaks at {of_events:,} bytes, the allocator counted {counted:,}.")

    @property
    def reserved_bytes(self) -> int:
        """The most that the allocator took from the device for tensors."""
        return int(self._cuda.max_memory_reserved(self._device)) - self._workspaces

    @property
    def free_bytes(self) -> int:
        """What the device had left when the allocator had taken most from it: a tensor of that size could have been
        allocated, and the steps would still have run. In whole pages of the device, as the allocator takes them.
        """
        cuda, device = self._cuda, self._device
        taken = int(cuda.max_memory_reserved(device)) - int(cuda.memory_reserved(device))
        return max(0, int(cuda.mem_get_info(device)[0]) - taken) // PAGE * PAGE

    def set_capacity(self, capacity_bytes: int | None) -> None:
        """Cap what the allocator may take from the device for tensors; None removes the cap. It takes whole pages, and
        torch takes the cap as a fraction of the device in fp32, which is off by some KiB.
        """
        total = self._cuda.get_device_properties(self._device).total_memory
        most = total if capacity_bytes is None else capacity_bytes // PAGE * PAGE + self._workspaces
        self._cuda.set_per_process_memory_fraction(min(1.0, (most + PAGE / 2) / total), self._device)

    def events(self) -> list[tuple[int, int, str]]:
        """The log, without refusals."""
        return [event for event in self._events if event[0] != REFUSED]

    def times(self) -> list[int]:
        """When each event happened on the host, in nanoseconds since 1970."""
        return [at for at, event in zip(self._times, self._events, strict=True) if event[0] != REFUSED]

    def refused(self) -> tuple[int, int] | None:
        """The index of the last event before the last allocation that was refused, and its bytes."""
        return last_refusal(self._events)


def last_refusal(events: Iterable[tuple[int, int, str]]) -> tuple[int, int] | None:
    """The last refusal, as the index of the event before it; and its bytes."""
    refusal, index = None, -1
    for address, size, _ in events:
        if address == REFUSED:
            refusal = (index, size)
        else:
            index += 1
    return refusal


def read_history(
    trace: Iterable[Mapping[str, Any]], marks: Sequence[int]
) -> tuple[list[tuple[int, int, str]], list[int]]:
    """The events of CUDA's memory history, with the numbers of ``marks`` in place of their signs, and when each
    happened, in nanoseconds since 1970; 0 if the history has no times.

    The history's sizes are those that were requested. A block counts as released when the program frees it
    ("free_requested"): the time of its reuse depends on the streams' progress, and so on chance.

    Raises RankError if the numbers of signs and marks differ.
    """
    signs = {"alloc": 1, "free_requested": -1}
    events: list[tuple[int, int, str]] = []
    times: list[int] = []
    waiting = list(marks)
    for entry in trace:
        if entry["action"] in signs:
            events.append((entry["addr"], signs[entry["action"]] * entry["size"], ""))
        elif entry["action"] == "oom":
            events.append((REFUSED, entry["size"], ""))
        else:
            continue
        times.append(1000 * entry.get("time_us", 0))
        if waiting and [size for _, size, _ in events[-4:]] == [*SIGN, *(-size for size in reversed(SIGN))]:
            events[-4:], times[-4:] = [(-1, waiting.pop(0), "")], times[-1:]
    if waiting:
        raise RankError(f"CUDA's memory history lacks {len(waiting)} of its {len(marks)} marks.")
    return events, times


@functools.cache
def make_workspaces(device: int) -> int:
    """cuBLAS' handles and their workspaces belong to one thread, and backward runs in another one than forward. Returns
    the bytes that the device's allocator took for them.
    """
    import torch

    with torch.inference_mode(False), torch.enable_grad():  # a script may begin to use CUDA inside of no_grad
        some = torch.ones(16, 16, device=torch.device("cuda", device), requires_grad=True)
        (some @ some).sum().backward()
    torch.cuda.synchronize(device)
    del some
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.memory_reserved(device)
