"""A model of CUDA's caching allocator (c10/cuda/CUDACachingAllocator.cpp of torch 2.13, its default settings).

Sizes are rounded to 512 bytes. Requests of at most 1 MiB are cut from segments of 2 MiB, larger ones below 10 MiB from
segments of 20 MiB. Requests above that get a segment of their own, rounded to 2 MiB. The smallest free block that is
large enough is used, the lowest of several. A block is freed to the stream of its segment's request, and joined with
its free neighbours. If the device has no memory left, wholly free segments are returned to it, once.

benchmarks/allocator_real.py compares it with the compiled allocator of torch 2.13: every block has the same address.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from dataclasses import dataclass

from perfsuite.features.predict.trace_records import CACHE

SMALLEST_BLOCK = 512
SMALL = 2**20  # requests up to here share small segments
SMALL_SEGMENT = 2 * 2**20
LARGE_SEGMENT = 20 * 2**20
OWN_SEGMENT = 10 * 2**20  # requests from here on have their own segment
SEGMENT_MULTIPLE = 2 * 2**20

Event = tuple[int, int, int, int]  # storage, bytes, label, stream: wire.trace.Trace


class OutOfMemory(Exception):
    """A request that the device could not satisfy, even after all cached memory was returned to it."""

    def __init__(self, missing_bytes: int) -> None:
        super().__init__(f"{missing_bytes} bytes are missing")
        self.missing_bytes = missing_bytes


@dataclass(eq=False, slots=True)
class _CachedBlock:
    pool: _Pool
    address: int
    size: int
    before: _CachedBlock | None = None
    after: _CachedBlock | None = None
    free: bool = False


class _Pool:
    """The free blocks of one stream and kind, by size and address."""

    def __init__(self, small: bool) -> None:
        self.small = small
        self._order: list[tuple[int, int]] = []
        self._blocks: dict[tuple[int, int], _CachedBlock] = {}

    def add(self, block: _CachedBlock) -> None:
        bisect.insort(self._order, (block.size, block.address))
        self._blocks[block.size, block.address] = block

    def remove(self, block: _CachedBlock) -> None:
        del self._order[bisect.bisect_left(self._order, (block.size, block.address))]
        del self._blocks[block.size, block.address]

    def best(self, size: int) -> _CachedBlock | None:
        place = bisect.bisect_left(self._order, (size, 0))
        return self._blocks[self._order[place]] if place < len(self._order) else None

    def whole_segments(self) -> list[_CachedBlock]:
        return [block for block in self._blocks.values() if block.before is None and block.after is None]


class CachingAllocator:
    """``allocated`` are the bytes of blocks in use, ``reserved`` those of all ``segments``, and their peaks."""

    def __init__(self, capacity_bytes: int | None = None) -> None:
        self.capacity = capacity_bytes
        self.allocated = self.reserved = self.allocated_peak = self.reserved_peak = self.segments = 0
        self._pools: dict[tuple[int, bool], _Pool] = {}
        self._next_address = SEGMENT_MULTIPLE

    def allocate(self, size: int, stream: int = 0) -> _CachedBlock:
        """A block for a request. Raises OutOfMemory."""
        size = max(SMALLEST_BLOCK, -(-size // SMALLEST_BLOCK) * SMALLEST_BLOCK)
        small = size <= SMALL
        pool = self._pools.setdefault((stream, small), _Pool(small))
        block = pool.best(size)
        if block is not None:
            pool.remove(block)
        else:
            block = self._new_segment(pool, segment_size(size))
        rest = block.size - size
        if rest >= SMALLEST_BLOCK if small else rest > SMALL:
            remainder = _CachedBlock(pool, block.address + size, rest, block, block.after, True)
            if block.after is not None:
                block.after.before = remainder
            block.after, block.size = remainder, size
            pool.add(remainder)
        block.free = False
        self.allocated += block.size
        self.allocated_peak = max(self.allocated_peak, self.allocated)
        return block

    def release(self, block: _CachedBlock) -> None:
        """Free a block to its pool."""
        self.allocated -= block.size
        block.free = True
        for other in (block.before, block.after):
            if other is not None and other.free:
                block.pool.remove(other)
                block = _join(*((other, block) if other is block.before else (block, other)))
        block.pool.add(block)

    def begin(self, capacity_bytes: int | None) -> None:
        """Count peaks from now on, on a device with that capacity and an empty cache. Raises OutOfMemory."""
        self.capacity = capacity_bytes
        self.return_cached()
        if capacity_bytes is not None and self.reserved > capacity_bytes:
            raise OutOfMemory(self.reserved - capacity_bytes)
        self.allocated_peak, self.reserved_peak = self.allocated, self.reserved

    def return_cached(self) -> None:
        """Give all wholly free segments back to the device, as torch.cuda.empty_cache does."""
        for pool in self._pools.values():
            for block in pool.whole_segments():
                pool.remove(block)
                self.reserved -= block.size
                self.segments -= 1

    def _new_segment(self, pool: _Pool, size: int) -> _CachedBlock:
        if self.capacity is not None and self.reserved + size > self.capacity:
            self.return_cached()
            if self.reserved + size > self.capacity:
                raise OutOfMemory(self.reserved + size - self.capacity)
        self.reserved += size
        self.segments += 1
        self.reserved_peak = max(self.reserved_peak, self.reserved)
        block = _CachedBlock(pool, self._next_address, size)
        self._next_address += -(-size // SEGMENT_MULTIPLE) * SEGMENT_MULTIPLE
        return block


def _join(first: _CachedBlock, second: _CachedBlock) -> _CachedBlock:
    first.size += second.size
    first.after = second.after
    if second.after is not None:
        second.after.before = first
    first.free = True
    return first


def segment_size(size: int) -> int:
    """The bytes requested from the device for a rounded request."""
    if size <= SMALL:
        return SMALL_SEGMENT
    if size < OWN_SEGMENT:
        return LARGE_SEGMENT
    return -(-size // SEGMENT_MULTIPLE) * SEGMENT_MULTIPLE


def replay(events: Iterable[Event], first_step: int, capacity_bytes: int | None = None) -> CachingAllocator:
    """The allocator after all events; its peaks are those from the event ``first_step`` on.

    The capacity applies only from then on, and the cache is emptied first: building the model may need more than
    training, and it is not the question here. Raises OutOfMemory.
    """
    allocator = CachingAllocator()
    blocks: dict[int, _CachedBlock] = {}
    for index, (storage, size, _, stream) in enumerate(events):
        if index == first_step:
            allocator.begin(capacity_bytes)
        if storage == CACHE:
            allocator.return_cached()
        elif storage == -1 or size == 0:
            continue
        elif size > 0:
            blocks[storage] = allocator.allocate(size, stream)
        elif storage in blocks:
            allocator.release(blocks.pop(storage))
    return allocator


def smallest_capacity(events: list[Event], first_step: int, free: CachingAllocator | None = None) -> int:
    """The smallest device, to a thousandth and a multiple of 2 MiB, on which the events fit. ``free`` is the allocator
    after their replay on one without a limit.
    """
    free = free or replay(events, first_step)
    step_bytes = max(1, free.allocated_peak // 1000 // SEGMENT_MULTIPLE) * SEGMENT_MULTIPLE
    low, high = free.allocated_peak // step_bytes, -(-free.reserved_peak // step_bytes)  # low does not fit, high does
    low = min(low, high) - 1
    while high - low > 1:
        middle = (low + high) // 2
        try:
            replay(events, first_step, middle * step_bytes)
            high = middle
        except OutOfMemory:
            low = middle
    return high * step_bytes
