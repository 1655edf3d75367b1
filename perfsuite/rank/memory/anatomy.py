"""The anatomy of a memory peak: the bytes alive at the fullest moment, by purpose.

Works on a log of allocations and releases with marks between the phases of a step, from any source: the CPU allocator,
CUDA's memory history or a trace under fake tensors.

A block's category is the first of these that applies:
    parameters, master_parameters, optimizer_state, gradients   the trainer named its storage at a mark in its life
    communication   a collective read or wrote it
    batch           allocated while the batch was made
    activations     allocated in a forward and still alive when the backward began
    made_before_steps   of a script: allocated before its recorded steps, and never released, such as its data
    temporaries     everything else
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

CATEGORIES = (
    "parameters", "master_parameters", "optimizer_state", "gradients", "communication", "batch", "activations",
    "temporaries", "made_before_steps",
)  # fmt: skip
_NAMED = CATEGORIES[:4]
SETUP = "setup"  # the phase before all marks


@dataclass(frozen=True)
class Mark:
    """A moment between two phases: the phase that begins, and the storages that the trainer named by address."""

    phase: str
    named: Mapping[int, str] = field(default_factory=dict)


@dataclass
class _Block:
    size: int
    operation: str
    phase: str
    category: str = ""
    activation: bool = False
    communicated: bool = False
    stays: bool = False
    step: int = 0  # in which it was allocated; 0: before the recorded ones
    is_released: bool = False

    def kind(self) -> str:
        if self.category:
            return self.category
        if self.communicated:
            return "communication"
        if self.phase in ("batch", "data"):
            return "batch"
        if self.stays:
            return "made_before_steps"
        return "activations" if self.activation else "temporaries"


@dataclass(frozen=True)
class Anatomy:
    """``peak_bytes`` is the sum of ``categories`` at the fullest moment, in ``phase``.

    ``largest`` is the most bytes of each category at any mark of the recorded steps (gradients need not be alive at
    the peak), ``operations`` the bytes at the peak by (category, operator that allocated them), ``holders`` every
    block at the peak as (category, operator, bytes). ``carried`` are the bytes at the peak, by the same, that an
    earlier step allocated and that is released later.
    """

    peak_bytes: int
    phase: str
    categories: dict[str, int]
    largest: dict[str, int]
    operations: dict[tuple[str, str], int]
    holders: list[tuple[str, str, int]] = field(default_factory=list)
    carried: dict[tuple[str, str], int] = field(default_factory=dict)


def dissect(events: Iterable[tuple[int, int, str]], marks: Mapping[int, Mark], own: bool = False) -> Anatomy:
    """Replay the log and return the anatomy of its peak from the first mark of phase "batch" on. ``own``: a script's.

    ``events`` are (address, bytes, operator): bytes > 0 allocated, < 0 released, 0 touched by a collective; a mark has
    address -1 and its number as the bytes.
    """
    events = list(events)
    begin = min(_batches(events, marks), default=None)
    totals, largest = dict.fromkeys(CATEGORIES, 0), dict.fromkeys(CATEGORIES, 0)
    if begin is None:
        return Anatomy(-1, "setup", totals, largest, {}, [])
    timeline = changes(events, marks, own)
    peak_index, peak_bytes = _find_peak(timeline, begin)
    at_marks = [index for index, (address, _, _) in enumerate(events) if address == -1 and index >= begin]
    live: dict[int, _Block] = {}
    peak_phase, at_peak = "batch", list[_Block]()
    moments = sorted(
        [*((at, None) for at in at_marks), *((change.index, change) for change in timeline)], key=itemgetter(0)
    )
    for index, change in moments:
        if change is None:
            largest = {name: max(largest[name], totals[name]) for name in CATEGORIES}
        else:
            totals[change.block.kind()] += change.size
            if change.size > 0:
                live[id(change.block)] = change.block
            else:
                del live[id(change.block)]
        if index == peak_index:
            at_peak, peak_phase = list(live.values()), change.phase if change else "batch"
    categories: Counter[str] = Counter(dict.fromkeys(CATEGORIES, 0))
    operations: Counter[tuple[str, str]] = Counter()
    for block in at_peak:
        categories[block.kind()] += block.size
        operations[block.kind(), block.operation] += block.size
    holders = [(block.kind(), block.operation, block.size) for block in at_peak]
    step = sum(at <= peak_index for at in _batches(events, marks))
    carried: Counter[tuple[str, str]] = Counter()
    for block in at_peak:
        if block.step < step and block.is_released:
            carried[block.kind(), block.operation] += block.size
    return Anatomy(peak_bytes, peak_phase, dict(categories), largest, dict(operations), holders, dict(carried))


def curve(
    events: Iterable[tuple[int, int, str]], marks: Mapping[int, Mark], most_points: int, own: bool = False
) -> list[tuple[str, list[int]]]:
    """Live bytes over the last step, as (phase, bytes by category in the order of CATEGORIES), oldest first.

    Each of at most ``most_points`` stretches of the step is shown by its fullest moment.
    """
    events = list(events)
    timeline = changes(events, marks, own)
    last = max(_batches(events, marks), default=0)
    totals = dict.fromkeys(CATEGORIES, 0)
    points: list[tuple[str, list[int]]] = []
    begin = sum(change.index < last for change in timeline)
    length = max(1, -(-(len(timeline) - begin) // most_points))
    for number, one in enumerate(timeline):
        totals[one.block.kind()] += one.size
        if number < begin:
            continue
        point = (one.phase, list(totals.values()))
        if (number - begin) % length == 0:
            points.append(point)
        elif sum(point[1]) > sum(points[-1][1]):
            points[-1] = point
    return points


def levels(
    events: Iterable[tuple[int, int, str]], marks: Mapping[int, Mark], own: bool = False
) -> Iterator[tuple[int, dict[str, int]]]:
    """Live bytes by category from the first mark of phase "batch" on, as (index of the event, what it changes).

    The first has every category. The largest sum is the peak of ``dissect``.
    """
    events = list(events)
    first = min(_batches(events, marks), default=len(events))
    totals = dict.fromkeys(CATEGORIES, 0)
    begun = False
    for change in changes(events, marks, own):
        if change.index > first and not begun:
            yield first, dict(totals)
            begun = True
        kind = change.block.kind()
        totals[kind] += change.size
        if begun:
            yield change.index, {kind: totals[kind]}


@dataclass(frozen=True)
class MemoryChange:
    """A block begins or ends to live: ``size`` is added to what is live."""

    index: int
    phase: str
    block: _Block
    size: int


def changes(events: Iterable[tuple[int, int, str]], marks: Mapping[int, Mark], own: bool = False) -> list[MemoryChange]:
    """All of them. The category of a block is known when its life is. ``own``: a script may hold what it likes."""
    timeline: list[MemoryChange] = []
    live: dict[int, _Block] = {}
    phase, step = SETUP, 0
    for index, (address, size, operation) in enumerate(events):
        if address == -1:
            phase = marks[size].phase
            step += phase == "batch"
            _name(live, marks[size])
        elif size > 0:
            live[address] = _Block(size, operation, phase, step=step)
            timeline.append(MemoryChange(index, phase, live[address], size))
        elif size < 0 and address in live:
            live[address].is_released = True
            timeline.append(MemoryChange(index, phase, live[address], -live.pop(address).size))
        elif address in live:
            live[address].communicated = True
    for block in live.values():
        block.stays = own and block.phase == SETUP
    return timeline


def _batches(events: Iterable[tuple[int, int, str]], marks: Mapping[int, Mark]) -> Iterator[int]:
    """The indices of the marks with which steps begin."""
    return (at for at, (address, size, _) in enumerate(events) if address == -1 and marks[size].phase == "batch")


def whole_steps(events: Sequence[tuple[int, int, str]], marks: Mapping[int, Mark]) -> Sequence[tuple[int, int, str]]:
    """The events without those of a step whose batch alone was recorded."""
    at = [index for index, (address, _, _) in enumerate(events) if address == -1]
    return events[: at[-1]] if at and marks[events[at[-1]][1]].phase == "batch" else events


def _find_peak(timeline: Sequence[MemoryChange], begin: int) -> tuple[int, int]:
    """The index of the event from ``begin`` on with which most bytes are alive, the first of equals, and the bytes."""
    before = sum(change.size for change in timeline if change.index < begin)
    later = [change for change in timeline if change.index > begin]
    totals = itertools.accumulate((change.size for change in later), initial=before)
    return max(zip([begin, *(change.index for change in later)], totals, strict=True), key=itemgetter(1))


def _name(live: Mapping[int, _Block], mark: Mark) -> None:
    for block in live.values():
        if mark.phase == "backward" and block.phase == "forward":
            block.activation = True
    for address, category in mark.named.items():
        named = live.get(address)
        if named and (not named.category or _NAMED.index(category) < _NAMED.index(named.category)):
            named.category = category
