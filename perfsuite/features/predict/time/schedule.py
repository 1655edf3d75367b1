"""The schedule of a predicted step: which stage works on which micro-batch when, as 1F1B orders them.

The order within a stage is that of Megatron's schedules (arXiv 2104.04473, section 2.2; core/pipeline_parallel/
schedules.py of NVIDIA/Megatron-LM). Each part of a stage's work begins when the stage is free and what it needs from
its neighbours is there.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from perfsuite.features.predict.time.constants import Constants
from perfsuite.features.predict.time.setup import MachineSetup, Setup
from perfsuite.features.predict.time.shape import Shape
from perfsuite.features.predict.time.step import Breakdown, stage_times, step
from perfsuite.records import chrome
from perfsuite.records.chrome import MICRO

FORWARD, BACKWARD = "forward", "backward"


@dataclass(frozen=True)
class Span:
    """``seconds`` of a stage from ``begin`` on. ``parts`` are the seconds by the parts of a Breakdown."""

    stage: int
    name: str
    begin: float
    seconds: float
    parts: dict[str, float] = field(default_factory=dict)
    micro_batch: int = -1
    chunk: int = 0


def spans(shape: Shape, setup: Setup, machine: MachineSetup, constants: Constants) -> list[Span]:
    """All that the stages do in one step, by stage and time. What lies between two spans of a stage is the bubble."""
    total = step(shape, setup, machine, constants)
    stages = stage_times(shape, setup, machine, constants)
    works: list[dict[str, dict[str, float]]] = []
    for stage in stages:
        matmuls = stage.pop(FORWARD), stage.pop(BACKWARD)
        share = matmuls[0] / sum(matmuls)
        halves = {FORWARD: (matmuls[0], share), BACKWARD: (matmuls[1], 1 - share)}
        works.append(
            {
                name: {"compute": compute} | {part: seconds * rate for part, seconds in stage.items()}
                for name, (compute, rate) in halves.items()
            }
        )
    found = _pipeline(works, setup.accumulation, setup.interleave)
    return found + _ends(found, total, len(works))


def _pipeline(works: Sequence[dict[str, dict[str, float]]], micro_batches: int, chunks: int) -> list[Span]:
    """The forwards and backwards of all micro-batches; a stage's work on one is divided equally over its chunks."""
    count = len(works)
    orders = [_order(stage, count, micro_batches, chunks) for stage in range(count)]
    durations = [{name: sum(parts.values()) / chunks for name, parts in work.items()} for work in works]
    ended: dict[tuple[str, int, int], float] = {}  # by direction, virtual stage and micro-batch
    places, free = [0] * count, [0.0] * count
    found: list[Span] = []
    last = count * chunks - 1
    while any(place < len(order) for place, order in zip(places, orders, strict=True)):
        for stage, order in enumerate(orders):
            while places[stage] < len(order):
                name, micro, chunk = order[places[stage]]
                here = chunk * count + stage
                if name == FORWARD:
                    before = ended.get((FORWARD, here - 1, micro)) if here else 0.0
                else:
                    before = ended.get((BACKWARD, here + 1, micro) if here < last else (FORWARD, here, micro))
                if before is None:
                    break
                begin = max(free[stage], before)
                seconds = durations[stage][name]
                free[stage] = ended[name, here, micro] = begin + seconds
                parts = {part: value / chunks for part, value in works[stage][name].items() if value}
                found.append(Span(stage, name, begin, seconds, parts, micro, chunk))
                places[stage] += 1
    return sorted(found, key=lambda one: (one.stage, one.begin))


def _order(stage: int, stages: int, micro_batches: int, chunks: int) -> list[tuple[str, int, int]]:
    """Direction, micro-batch and chunk of everything that a stage does, in order: 1F1B, or its interleaved form."""
    whole = micro_batches * chunks
    ahead = stages - stage - 1 if chunks == 1 else 2 * (stages - stage - 1) + (chunks - 1) * stages
    warm = min(ahead, whole)

    def at(number: int, backward: bool) -> tuple[str, int, int]:
        if chunks == 1:
            return (BACKWARD if backward else FORWARD, number, 0)
        group, inside = divmod(number, stages * chunks)
        chunk, micro = divmod(inside, stages)
        return BACKWARD if backward else FORWARD, group * stages + micro, chunks - 1 - chunk if backward else chunk

    order = [at(number, False) for number in range(warm)]
    for number in range(whole - warm):
        order += [at(warm + number, False), at(number, True)]
    return order + [at(number, True) for number in range(whole - warm, whole)]


def _ends(found: Sequence[Span], total: Breakdown, stages: int) -> list[Span]:
    """What follows the last micro-batch, in every stage alike."""
    begin = max(one.begin + one.seconds for one in found)
    ends = []
    for name in ("waiting", "data", "optimizer", "offload"):
        seconds = getattr(total, name)
        if seconds:
            ends += [Span(stage, name, begin, seconds, {name: seconds}) for stage in range(stages)]
            begin += seconds
    return ends


def write_trace(path: Path, title: str, found: Sequence[Span]) -> None:
    """Write the spans as a Chrome trace: one process with a thread per stage. Raises FileError."""
    events = chrome.name_process(0, title)
    for stage in sorted({one.stage for one in found}):
        events += chrome.name_thread(0, stage, f"stage {stage}", stage)
    for one in found:
        place = {"micro-batch": one.micro_batch, "chunk": one.chunk} if one.micro_batch >= 0 else {}
        name = f"{one.name} {one.micro_batch}" if place else one.name
        parts = {f"{part} (µs)": seconds * MICRO for part, seconds in one.parts.items()}
        events.append(chrome.span(0, one.stage, name, one.begin * MICRO, one.seconds * MICRO, place | parts, one.name))
    chrome.write(path, events)
