"""Streams: CUDA's allocator frees a block to the stream that allocated it, so the allocating stream matters."""

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch


@contextlib.contextmanager
def streams_have_pools(recorder: Any) -> Iterator[None]:  # noqa: C901  two small classes, which share the stream
    """FSDP2 asks the device's module for streams. A CPU's are all one; these are distinct, and a timeline keeps what
    waits for what. A block that another stream also uses is freed at once, as if that stream had passed.
    """
    numbers = itertools.count(1)

    class Event:
        """A timeline knows it by its number; 0 if none was kept."""

        def __init__(self, *_: Any, **__: Any) -> None:
            self.number = 0

        def record(self, stream: Any = None) -> None:
            if recorder.timeline:
                self.number = recorder.timeline.record((stream or current[-1]).number)

        def wait(self, stream: Any = None) -> None:
            if recorder.timeline:
                recorder.timeline.wait(self.number, (stream or current[-1]).number)

        def query(self) -> bool:
            return True

        def synchronize(self) -> None:
            if recorder.timeline:
                recorder.timeline.synchronize(0)

    class Stream:
        def __init__(self, *_: Any, **__: Any) -> None:
            self.number = next(numbers)

        def wait_stream(self, stream: Any) -> None:
            self.wait_event(stream.record_event())

        def wait_event(self, event: Any) -> None:
            event.wait(self)

        def synchronize(self) -> None:
            if recorder.timeline:
                recorder.timeline.synchronize(self.number)

        def record_event(self, event: Any = None) -> Any:
            """FSDP keeps its send buffers until the event is set, so there must be one."""
            event = event or Event()
            event.record(self)
            return event

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
        mock.patch.multiple(
            torch.cpu, Stream=Stream, Event=Event, stream=stream, current_stream=lambda *_: current[-1]
        ),
        mock.patch.object(torch.Tensor, "record_stream", lambda tensor, stream: None),
    ):
        yield
