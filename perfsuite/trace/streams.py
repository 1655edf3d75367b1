"""Streams: CUDA's allocator frees a block to the stream that allocated it, so the allocating stream matters."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch


@contextlib.contextmanager
def streams_have_pools(recorder: Any) -> Iterator[None]:
    """FSDP2 asks the device's module for streams. A CPU's are all one; these are distinct, and do nothing else. A block
    that another stream also uses is freed at once, as if that stream had passed.
    """
    numbers = itertools.count(1)

    class Stream:
        def __init__(self, *_: Any, **__: Any) -> None:
            self.number = next(numbers)

        def wait_stream(self, stream: Any) -> None:
            """Nothing runs, so there is nothing to wait for."""

        def wait_event(self, event: Any) -> None:
            """Nothing runs, so there is nothing to wait for."""

        def synchronize(self) -> None:
            """Nothing runs, so there is nothing to wait for."""

        def record_event(self, event: Any = None) -> Any:
            """FSDP keeps its send buffers until the event is set, so there must be one."""
            return event or torch.cpu.Event()

    main = Stream()
    main.number = 0
    current = [main]

    @contextlib.contextmanager
    def stream(chosen: Any) -> Iterator[None]:
        current.append(chosen if isinstance(chosen, Stream) else main)
        recorder.stream = current[-1].number
        try:
            yield
        finally:
            current.pop()
            recorder.stream = current[-1].number

    with (
        mock.patch.multiple(torch.cpu, Stream=Stream, stream=stream, current_stream=lambda *_: current[-1]),
        mock.patch.object(torch.Tensor, "record_stream", lambda tensor, stream: None),
    ):
        yield
