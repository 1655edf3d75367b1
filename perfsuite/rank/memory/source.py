"""What the sources of a device's bytes have in common: CpuAllocator (rank/memory/cpu_allocator.py) and CudaHistory
(meters/_cuda_history.py).
"""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from perfsuite.rank.memory.anatomy import Mark

KEPT_STEPS = 2  # a batch lives until the next one replaces it, and may be made in the step before its own


class MemorySource:
    """Counts the bytes of a rank's device, or of several. What one of the two does not have is as it is here."""

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


class MemoryRecord(Protocol):
    """What other meters and the rank's end read of the recorded steps' memory: meters/memory.py. A log has an event
    (address, bytes, operator) for each allocation, release and mark.
    """

    @property
    def source(self) -> MemorySource:
        """What counts the bytes."""

    @property
    def marks(self) -> Mapping[int, Mark]:
        """The beginnings of phases, by their numbers in the log."""

    @property
    def logs(self) -> Sequence[Sequence[tuple[int, int, str]]]:
        """Of each device."""

    @property
    def events(self) -> Sequence[tuple[int, int, str]]:
        """The log of the fullest device."""

    @property
    def times(self) -> Sequence[int]:
        """When each of these events happened, in nanoseconds since 1970."""

    def at_refusal(self) -> dict[str, int]:
        """The bytes alive when memory ran out in a recorded step, by category; empty if unknown."""
