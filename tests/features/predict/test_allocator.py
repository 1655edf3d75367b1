"""The model of CUDA's caching allocator, by cases whose answers follow from its source and documentation, and by
recordings of torch's own (data/allocator, made by benchmarks/allocator_real.py).
"""

import hashlib
import importlib.util
import json
import sys
from pathlib import Path

import pytest

from perfsuite.features.predict.allocator import CachingAllocator, OutOfMemory, replay, segment_size, smallest_capacity
from perfsuite.features.predict.trace_records import CACHE

MIB = 2**20
RECORDINGS = sorted((Path(__file__).parents[2] / "data" / "allocator").glob("*.json"))
SCRIPT = Path(__file__).parents[3] / "benchmarks" / "allocator_real.py"


@pytest.mark.parametrize(
    ("requested", "segment"),
    [
        (512, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 512, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (11 * MIB + 512, 12 * MIB),
    ],
)
def test_segments_have_the_sizes_of_the_source(requested, segment):
    """kSmallBuffer, kLargeBuffer, kMinLargeAlloc and kRoundLarge decide what is asked of the device."""
    assert segment_size(requested) == segment


@pytest.mark.parametrize(("requested", "allocated"), [(1, 512), (512, 512), (513, 1024), (4 * MIB + 1, 4 * MIB + 512)])
def test_requests_are_rounded_to_512_bytes(requested, allocated):
    """Every block is a multiple of kMinBlockSize."""
    allocator = CachingAllocator()
    allocator.allocate(requested)

    assert allocator.allocated == allocated


def test_small_requests_share_a_segment():
    """Four requests of half a MiB fill one small segment, the fifth opens another."""
    allocator = CachingAllocator()
    for _ in range(4):
        allocator.allocate(MIB // 2)
    before = allocator.reserved
    allocator.allocate(MIB // 2)

    assert (before, allocator.reserved) == (2 * MIB, 4 * MIB)


def test_a_large_block_is_not_split_for_a_small_remainder():
    """In the large pool a remainder of at most 1 MiB stays with the block, and counts as allocated."""
    allocator = CachingAllocator()
    allocator.allocate(11 * MIB + 512)

    assert allocator.allocated == 12 * MIB == allocator.reserved


def test_the_best_fit_is_taken():
    """Of two free blocks the smaller that is large enough is used, and the larger stays whole."""
    allocator = CachingAllocator()
    large, small = allocator.allocate(40 * MIB), allocator.allocate(30 * MIB)
    allocator.release(large)
    allocator.release(small)
    allocator.allocate(28 * MIB)
    allocator.allocate(40 * MIB)

    assert allocator.reserved == 70 * MIB


def test_free_neighbours_are_joined():
    """Two halves of a segment, given back, serve a request of their sum."""
    allocator = CachingAllocator()
    first, second = allocator.allocate(9 * MIB), allocator.allocate(9 * MIB)
    for block in (first, second):
        allocator.release(block)
    allocator.allocate(18 * MIB)

    assert allocator.reserved == 20 * MIB


def test_streams_do_not_share_what_is_cached():
    """A block that one stream gave back is not given to another."""
    allocator = CachingAllocator()
    allocator.release(allocator.allocate(16 * MIB, stream=0))
    allocator.allocate(16 * MIB, stream=1)

    assert allocator.reserved == 32 * MIB


def test_cached_segments_are_returned_before_memory_runs_out():
    """At the capacity, whole free segments go back to the device, of every stream."""
    allocator = CachingAllocator(capacity_bytes=32 * MIB)
    allocator.release(allocator.allocate(16 * MIB, stream=1))
    allocator.allocate(30 * MIB)

    assert allocator.reserved == 30 * MIB


def test_a_partly_used_segment_cannot_be_returned():
    """One block in use keeps its segment, and the request fails by what is missing."""
    allocator = CachingAllocator(capacity_bytes=32 * MIB)
    allocator.allocate(2 * MIB)
    with pytest.raises(OutOfMemory) as failure:
        allocator.allocate(30 * MIB)

    assert failure.value.missing_bytes == 18 * MIB


def test_the_smallest_capacity_lies_between_allocated_and_reserved():
    """What a stream has cached can be returned: less than was reserved fits, and 2 MiB less than that does not."""
    events = [(1, 40 * MIB, 0, 0), (1, -40 * MIB, 0, 0), (2, 30 * MIB, 0, 1), (3, 20 * MIB, 0, 0)]
    free = replay(events, 0)
    capacity = smallest_capacity(events, 0)

    assert (free.reserved_peak, capacity) == (70 * MIB, 50 * MIB)


def test_an_emptied_cache_reserves_nothing():
    """A request after it takes a segment of its own, where the free one would have served it."""
    events = [(1, 40 * MIB, 0, 0), (1, -40 * MIB, 0, 0), (CACHE, 0, 0, 0), (2, 30 * MIB, 0, 0)]

    assert replay(events, 0).reserved == 30 * MIB


def test_peaks_begin_with_the_first_step():
    """What building the model took and gave back does not count."""
    events = [(1, 40 * MIB, 0, 0), (1, -40 * MIB, 0, 0), (-1, 0, 0, 0), (2, 12 * MIB, 0, 0)]

    assert replay(events, 2).allocated_peak == 12 * MIB


def test_the_capacity_holds_from_the_first_step():
    """What building took may be more than the device has, if it was given back."""
    events = [(1, 40 * MIB, 0, 0), (1, -40 * MIB, 0, 0), (-1, 0, 0, 0), (2, 12 * MIB, 0, 0)]

    assert replay(events, 2, capacity_bytes=12 * MIB).reserved == 12 * MIB


@pytest.fixture(scope="module")
def script():
    """benchmarks/allocator_real.py, which made the recordings."""
    found = importlib.util.spec_from_file_location("allocator_real", SCRIPT)
    assert found
    sys.modules["allocator_real"] = script = importlib.util.module_from_spec(found)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(SCRIPT.parent)
        found.loader.exec_module(script)
    return script


@pytest.fixture(scope="module", params=RECORDINGS, ids=lambda path: path.stem)
def recorded(request, script):
    """A recording and the model's answers to it."""
    recording = json.loads(request.param.read_text())
    orders = iter(recording["orders"])
    requests = list(zip(orders, orders, orders, strict=True))
    begin, capacity = recording["begin"], recording["capacity"]
    return recording, list(script.ours(script.Requests(name="", orders=requests, begin=begin, capacity=capacity)))


def test_there_are_recordings():
    """Of random requests on several streams and short devices, and of a real cell."""
    assert len(RECORDINGS) >= 5


def test_every_block_is_where_torch_puts_it(recorded):
    """The addresses of all blocks, in order, and where memory ran out."""
    recording, answers = recorded
    addresses = " ".join(str(one[0]) if one else "oom" for one in answers)

    assert [at for at, one in enumerate(answers) if one is None] == recording["out_of_memory"]
    assert hashlib.sha256(addresses.encode()).hexdigest() == recording["addresses"]


def test_bytes_and_segments_are_torchs(recorded):
    """Allocated and reserved bytes and the number of segments, to the byte, wherever what is reserved changes."""
    recording, answers = recorded
    changes: list[tuple[int, ...]] = []
    for at, one in enumerate(answers):
        if one and (not changes or one[2] != changes[-1][2]):
            changes.append((at, *one[1:]))

    assert [number for change in changes for number in change] == recording["reserved"]
    assert list(answers[-1]) == recording["last"]
