"""Tracing processes stay warm for the whole session, as rank servers do: warm.py."""

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from warm import variables

from perfsuite.features.predict.trace.tracing import MemoryTracer
from perfsuite.features.predict.trace_records import Trace, TraceJob
from perfsuite.records.failure import Failure


@pytest.fixture(scope="session", autouse=True)
def tracing_processes() -> Iterator[None]:
    """The next trace need not import torch again, unless a round was broken off or imported code of a test's own."""
    idle: dict[str, list[MemoryTracer]] = defaultdict(list)
    start, end, trace_round = MemoryTracer._start, MemoryTracer.__exit__, MemoryTracer.round
    keys, spoilt = dict[int, str](), set[int]()

    def lend(self: MemoryTracer) -> Any:
        # The predictions are kept by the process of pytest, and how many forks trace at once is only speed.
        key = variables("XDG_CACHE_HOME")
        while idle[key]:
            kept = idle[key].pop()
            if kept._process is not None and kept._process.poll() is None:
                self._stack, self._folder = kept._stack, kept._folder
                process = kept._process
                break
        else:
            process = start(self)
        keys[id(self)] = key
        return process

    def watched(self: MemoryTracer, jobs: Sequence[TraceJob]) -> Iterator[tuple[int, Trace | Failure]]:
        fit = id(self) not in spoilt and all(
            one.job.model.build.startswith("perfsuite.") and not one.job.catalogs for one in jobs
        )
        spoilt.add(id(self))  # until all results are read
        yield from trace_round(self, jobs)
        if fit:
            spoilt.discard(id(self))

    def give_back(self: MemoryTracer, *_: object) -> None:
        key = keys.pop(id(self), "")
        if not key or id(self) in spoilt:
            spoilt.discard(id(self))
            end(self)
            return
        kept = MemoryTracer(self.processes)
        kept._stack, kept._folder, kept._process = self._stack, self._folder, self._process
        idle[key].append(kept)

    with pytest.MonkeyPatch.context() as patch:
        for name, function in (("_start", lend), ("round", watched), ("__exit__", give_back)):
            patch.setattr(MemoryTracer, name, function)
        yield
    for kept in itertools.chain.from_iterable(idle.values()):
        end(kept)
