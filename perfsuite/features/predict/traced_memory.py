"""Predicts the memory of cells: traces their ranks, and caches the results."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from perfsuite.catalog.cell import Cell
from perfsuite.catalog.registry import Catalog
from perfsuite.features.predict.prediction import Prediction
from perfsuite.features.predict.trace.tracing import MemoryTracer, TraceFailed, job_of, kept_at, trace_each
from perfsuite.features.predict.trace_records import HOST, Trace, TraceJob
from perfsuite.features.predict.trace_summary import summarize
from perfsuite.features.predict.traced_ranks import first_like, of_all_ranks, ranks_of
from perfsuite.features.predict.untraceable import why_not_traced
from perfsuite.launch.hardware_here import why_missing
from perfsuite.rank.memory.anatomy import Mark
from perfsuite.rank.memory.snapshot import make_snapshot, pickled
from perfsuite.records import codec
from perfsuite.records.failure import Failure
from perfsuite.records.formats import FORMAT
from perfsuite.records.suspects import locate


def predict(
    cells: Sequence[Cell],
    catalog: Catalog,
    *,
    processes: int = 1,
    padded: bool = True,
    counted: bool = False,
    fresh: bool = False,
) -> list[Prediction]:
    """The prediction of every cell, from the cache if nothing has changed; ``fresh``: never. Raises TraceFailed.

    A cell that cannot be traced has a prediction too, with the outcome "unsupported" and its reason. ``counted`` takes
    one more step, whose operators, FLOPs and messages are counted.
    """
    with MemoryTracer(processes) as tracer:
        outcomes = dict(attempt_each(cells, catalog, tracer, padded=padded, counted=counted, fresh=fresh))
    predictions = []
    for number, cell in enumerate(cells):
        found = outcomes[number]
        if isinstance(found, Failure):
            raise TraceFailed(cell.id, found)
        predictions.append(found)
    return predictions


def attempt_each(  # noqa: C901, PLR0912, PLR0915  its steps share which ranks are known, traced and still missing
    cells: Sequence[Cell],
    catalog: Catalog,
    tracer: MemoryTracer,
    *,
    padded: bool = True,
    counted: bool = False,
    fresh: bool = False,
) -> Iterator[tuple[int, Prediction | Failure]]:
    """Like predict, but the number of every cell with its prediction as soon as it is known, or with its failure.

    Each rank's prediction is cached when its trace ends, so that an interruption loses only what was running.
    """
    known: dict[int, dict[int, Prediction | Failure]] = defaultdict(dict)
    waiting: list[_Waiting] = []
    for number, cell in enumerate(cells):
        if reason := why_not_traced(cell) or why_missing(cell.strategy):
            known[number][0] = unsupported(cell, reason)
            continue
        for rank in ranks_of(cell):
            job = job_of(cell, rank, catalog, padded, counted)
            path = kept_at(job)
            if path and not fresh and (found := codec.read_kept(path, Prediction)):
                known[number][rank] = found
            else:
                waiting.append(_Waiting(number, job, path, like=first_like(cell, rank, counted)))
    missing = Counter(one.number for one in waiting)

    def done(one: _Waiting, prediction: Prediction | Failure) -> Iterator[tuple[int, Prediction | Failure]]:
        known[one.number][one.job.rank] = prediction
        if one.path and isinstance(prediction, Prediction) and prediction.outcome != "unsupported":
            codec.keep(one.path, prediction)
        missing[one.number] -= 1
        yield from whole(one.number)

    def whole(number: int) -> Iterator[tuple[int, Prediction | Failure]]:
        if not missing[number]:
            yield number, of_all_ranks([one for _, one in sorted(known[number].items())], cells[number], catalog)

    for number in range(len(cells)):
        yield from whole(number)
    traced = {(one.number, one.job.rank) for one in waiting}
    for one in waiting:  # a first rank that was cached has no digest any more
        one.like = one.like if (one.number, one.like) in traced else None
    setups: dict[tuple[int, int | None], str] = {}
    unlike = []
    first = [one.job if one.like is None else msgspec.structs.replace(one.job, steps=0) for one in waiting]
    probes: list[tuple[_Waiting, str]] = []
    for index, result in trace_each(first, tracer.processes, tracer) if first else ():
        one = waiting[index]
        if isinstance(result, Trace) and one.like is not None:
            probes.append((one, result.setup))
            continue
        if isinstance(result, Trace):
            setups[one.number, one.job.rank] = result.setup
        yield from done(one, _predicted(cells[one.number], one.job.rank, result))
    for one, setup in probes:
        alike = known[one.number][one.like or 0]
        if setup == setups.get((one.number, one.like)) and isinstance(alike, Prediction):
            peaks = {one.job.rank: alike.peak_bytes}
            yield from done(one, msgspec.structs.replace(alike, rank=one.job.rank, ranks=peaks, seconds=0.0))
        else:
            unlike.append(one)
    for index, result in trace_each([one.job for one in unlike], tracer.processes, tracer) if unlike else ():
        one = unlike[index]
        yield from done(one, _predicted(cells[one.number], one.job.rank, result))


def is_kept(cell: Cell, catalog: Catalog, padded: bool) -> bool:
    """Whether the predictions of all ranks to trace are in the cache."""
    paths = [kept_at(job_of(cell, rank, catalog, padded)) for rank in ranks_of(cell)]
    return all(path and path.exists() for path in paths)


@dataclass
class _Waiting:
    """A rank of a cell that has no prediction yet. ``like`` is the rank that does the same if its setup is the same."""

    number: int
    job: TraceJob
    path: Path | None
    like: int | None = None


def _predicted(cell: Cell, rank: int, result: Trace | Failure) -> Prediction | Failure:
    """The prediction from a trace; a refusal is one too."""
    if isinstance(result, Trace):
        return summarize(cell, rank, result)
    return unsupported(cell, result.message) if result.kind == "unsupported" else result


def trace_snapshot(cell: Cell, rank: int, catalog: Catalog, padded: bool) -> bytes:
    """What the rank would allocate, as a file with a memory snapshot in torch's format. Raises TraceFailed."""
    ((_, trace),) = trace_each([job_of(cell, rank, catalog, padded, counted=False)], 1)
    if isinstance(trace, Failure):
        raise TraceFailed(cell.id, trace)
    labels = [locate(*label.split("\t")) if "\t" in label else label for label in trace.labels]
    events = [(storage, size, labels[label]) for storage, size, label, stream in trace.events if stream != HOST]
    marks = {number: Mark(mark.phase, mark.named) for number, mark in enumerate(trace.marks)}
    return pickled(make_snapshot(events, marks))


def unsupported(cell: Cell, reason: str) -> Prediction:
    """The placeholder for a cell that cannot be predicted."""
    return Prediction(format=FORMAT, cell=cell.id, outcome="unsupported", reason=reason, world_size=cell.layout.ranks)
