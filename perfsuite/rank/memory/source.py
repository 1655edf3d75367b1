"""What the sources of a device's bytes have in common: CpuAllocator (rank/memory/cpu_allocator.py) and CudaHistory
(rank/memory/cuda_history.py).
"""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

KEPT_STEPS = 2  # a batch lives until the next one replaces it, and may be made in the step before its own


class MemorySource:
    """Counts the bytes of a rank's device, or of several. What one of the two does not have is as it is here."""

    adopted_bytes = 0  # of them, what torch did not allocate, such as parts of a mapped file

    @property
    def each(self) -> Sequence[Any]:
        """What counts the bytes of each device."""
        return [self]

    @property
    def reserved_bytes(self) -> int | None:
        """The most that a caching allocator took from the device."""
        return None

    @property
    def free_bytes(self) -> int | None:
        """What the device had left then."""
        return None

    @property
    def live_bytes(self) -> int:
        """Bytes that are alive."""
        raise NotImplementedError

    def set_capacity(self, capacity_bytes: int | None) -> None:
        """Refuse what exceeds so many bytes; None: nothing."""
        raise NotImplementedError

    def count_library(self, name: str) -> None:
        """Count what this shared library allocates too."""
        raise NotImplementedError

    def adopt(self, tensors: Mapping[int, int]) -> None:
        """These tensors of a CPU are alive, by address in bytes, whoever allocated them."""

    def blocks(self) -> dict[int, int]:
        """The sizes of what is alive, by address."""
        raise NotImplementedError

    def begin_step(self) -> None:
        """What is allocated from here on belongs to the next step."""

    @property
    def kept_bytes(self) -> int:
        """Those of them that were allocated KEPT_STEPS ago or before; all, if their ages are unknown."""
        return self.live_bytes

    @property
    def missing_bytes(self) -> int | None:
        """What the refused allocation exceeded the capacity by."""
        return None

    def enter_phase(self, name: str) -> None:
        """Operators outside of modules belong to this name from now on."""

    def enter_module(self, name: str) -> None:
        """The forward of this module begins or continues; "": of none."""

    def settle(self) -> None:
        """Wait until no other thread of this process allocates."""

    def settled(self) -> contextlib.AbstractContextManager[None]:
        """Inside, a collective ends before the rank continues."""
        return contextlib.nullcontext()

    def snapshot(self) -> dict[str, Any] | None:
        """torch's own snapshot of the memory, if it makes one."""
        return None
