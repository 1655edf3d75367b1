"""Memory that a process has mapped itself, beside what malloc gives out."""

import mmap
import threading

import pytest

from perfsuite.meters.host import mapped

SIZE = 2**27
NEAR = 2**23  # what other threads of this process may do in between


def touched(flags: int) -> mmap.mmap:
    """Each page is written."""
    place = mmap.mmap(-1, SIZE, flags=flags)
    place[:: mmap.PAGESIZE] = bytes(SIZE // mmap.PAGESIZE)
    return place


def test_shared_maps_are_counted() -> None:
    """To the byte, as children share them."""
    before = mapped().shared
    with touched(mmap.MAP_SHARED | mmap.MAP_ANONYMOUS):
        assert mapped().shared - before == SIZE

    assert mapped().shared == before


def test_private_maps_are_counted() -> None:
    """Beside those of malloc, which are tensors here, and those of Python's own allocator."""
    torch = pytest.importorskip("torch", exc_type=ImportError)
    tensors, before = [torch.ones(SIZE // 4)], mapped().private
    with touched(mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS):
        tensors.append(torch.ones(SIZE // 4))

        assert abs(mapped().private - before - SIZE) < NEAR

    assert abs(mapped().private - before) < NEAR


def test_threads_have_mapped_nothing() -> None:
    """Their stacks are the kernel's to fill, and most of them never is."""
    before, end = mapped().private, threading.Event()
    threads = [threading.Thread(target=end.wait) for _ in range(16)]
    for thread in threads:
        thread.start()
    during = mapped().private
    end.set()
    for thread in threads:
        thread.join()

    assert during - before < NEAR
