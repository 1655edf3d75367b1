"""Objects: how many Python objects a step leaves alive for ever. A leak of small objects is in no peak of memory.

Counted between the first unfenced blocks, once all cycles are collected: what Python's garbage collector tracks,
containers and instances, but for the modules' own, which the rank server has frozen. A leak grows in every block, so
the block in which a type grew least is what counts: what is made once, such as a cache, is in one block alone. A leak
grows with the steps of a whole training, and so does the time of every collection.

A cache that is bounded may fill for longer than these blocks: a deque with a length, an lru_cache with a size, a
dictionary with a limit, such as torch's of shared storages. What those hold is no leak, and is shown as a cache. One
that a long training never fills is no cache.

Later steps are not counted by type, since that takes time, unless something has grown before, or more objects are there
after a block of them: these, or garbage.
"""

import collections
import contextlib
import functools
import gc
import itertools
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from types import FunctionType, ModuleType
from typing import Any

from perfsuite.catalog.definitions import Metric
from perfsuite.catalog.processes import OF_STEPS
from perfsuite.meters._growth import BLOCK, BLOCKS, ends_block, goes_on, is_asked_at, least_growth
from perfsuite.rank.garbage import Garbage
from perfsuite.rank.meter import Meter, by_part
from perfsuite.rank.session import Session
from perfsuite.rank.trainer import StepOutcome
from perfsuite.records.sample import Reading
from perfsuite.records.step_kinds import StepKind
from perfsuite.system.units import WHOLE

OURS = "perfsuite."
SHARED = (type, ModuleType, FunctionType)  # what a cache may hold, and others too
CACHE = type(functools.lru_cache(int))
LIMITS = ("limit", "maxlen", "maxsize", "max_size")  # how a class of a mapping or a list names its own bound
NEAR = 100_000  # entries: a step adds one or more, and a long training has as many steps
TIMES = 100  # as many entries as there are now can also come soon
FEWEST, MOST = 2, 4  # blocks between counts; to count takes some milliseconds, and disturbs the block after it


class Counts:
    """By type, since the first: a process has a thousand types, and OwnHost counts what is kept here."""

    def __init__(self) -> None:
        self.since_first: list[dict[str, int]] = []
        self._first: dict[str, int] = {}

    def add(self, counts: dict[str, int]) -> None:
        if not self.since_first:
            self._first = counts
        changes = {name: number - self._first.get(name, 0) for name, number in counts.items()}
        self.since_first.append({name: change for name, change in changes.items() if change})


class Objects(Meter):
    """Counts outside of all steps, after the timed ones. The first block fills caches, and is left out."""

    processes = OF_STEPS

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.counts = Counts()
        self.cached = Counts()  # of what bounded caches hold
        self.held: dict[str, int] = {}
        self.own = session.strategy.engine.own
        self.between: list[int] = []  # steps before each count, since the one before it
        self.steps = 0  # since the last count
        self.left: dict[str, int] = {}  # by each step, by type
        self.alive = 0  # before later steps, or after a block of them, with garbage
        self.counted_from: int | None = None  # the later step after which they are counted by type
        self.later_counts = Counts()

    def feed(self, kind: StepKind) -> contextlib.AbstractContextManager[object]:
        first = self.own and kind == StepKind.TIMED and not self.between  # a script's timed steps are a long block
        if first or (kind in (StepKind.UNFENCED, StepKind.CALLED) and self.steps and len(self.between) <= MOST):
            objects, cached = count(self.session.garbage)
            self.counts.add(objects)
            self.cached.add(cached)
            self.between.append(self.steps)
            self.steps = 0
        return contextlib.nullcontext()

    def stepped(self, kind: StepKind, outcome: StepOutcome) -> None:
        self.steps += kind == StepKind.UNFENCED or (self.own and kind == StepKind.TIMED)

    def readings(self) -> dict[str, Reading]:
        if len(self.between) <= FEWEST:  # of a cell with a capacity, or with too few steps
            return {}
        self.left, self.held = self._least(self.counts.since_first), self._least(self.cached.since_first)
        self.has_grown = bool(self.left)
        return self._readings(self.left, self.held)

    def _readings(self, leaked: dict[str, int], cached: dict[str, int]) -> dict[str, Reading]:
        readings = {"leaked_objects": by_part(leaked)}
        return readings | ({"cached_objects": by_part(cached)} if cached or self.own else {})

    def later(self, step: int, outcome: StepOutcome, seconds: float) -> None:
        if is_asked_at(step):
            before, self.alive = self.alive, len(gc.get_objects())
            more = step and 2 * (self.alive - before) >= BLOCK
            self.grows_late |= bool(more)
            if self.counted_from is None and (self.has_grown or more):
                self.counted_from = step
        if self.counted_from is not None and ends_block(step) and step - self.counted_from <= BLOCK * (BLOCKS + 1):
            self.later_counts.add(count(self.session.garbage)[0])

    def later_readings(self, readings: Mapping[str, Reading]) -> dict[str, Reading]:
        """A type that no longer grows is of a cache, although no bound of it was seen. Another begins to grow late."""
        if self.counted_from is None or "leaked_objects" not in readings:
            return {}
        later = self.later_counts.since_first
        leaked, cached = dict[str, int](), Counter(self.held)
        for name in later[-1]:
            last = [one.get(name, 0) for one in later[-BLOCKS - 1 :]]  # what grows late may begin in the first block
            if number := least_growth(last):
                leaked[_in_package(name)] = number
        for call, number in self.left.items():
            name = call.partition(": ")[2]
            if goes_on([one.get(name, 0) for one in later], number):
                leaked[call] = number
            else:
                cached[call] += number
                leaked.pop(call, None)
        return self._readings(leaked, cached)

    def _least(self, counts: list[dict[str, int]]) -> dict[str, int]:
        """How many of each type a step leaves, in the block that left fewest."""
        blocks = list(zip(itertools.pairwise(counts), self.between[1:], strict=True))
        left: dict[str, int] = {}
        for name in counts[-1]:
            number = min((after.get(name, 0) - before.get(name, 0)) // steps for (before, after), steps in blocks)
            if number > 0:
                left[_in_package(name)] = number
        return left


def _in_package(name: str) -> str:
    """The name of a type after its package's."""
    return f"{name.partition('.')[0]}: {name}"


def count(garbage: Garbage) -> tuple[dict[str, int], dict[str, int]]:
    """The live objects by their type, as ``package.module.Type``, and those that bounded caches hold. It leaves none
    itself: a Counter would ask whether what it is given is a Mapping, and every Mapping would remember the answer.

    A process has hundreds of thousands of objects and hundreds of types, so what can be asked of a type is.
    """
    garbage.collect()
    objects = gc.get_objects()
    numbers = _by_type(objects)
    caches = _in_modules() if gc.get_freeze_count() else []
    own = {kind for kind in numbers if str(kind.__module__).startswith(OURS)}  # a type of C may have a descriptor there
    bounded = {kind for kind in numbers if kind not in own and may_be_bounded(kind)}
    held: dict[int, Any] = {}
    ours: dict[int, Any] = {}  # notes of perfsuite's own of a step
    for one in objects:
        if type(one) in own:
            ours[id(one)] = one
            ours.update((id(inner), inner) for inner in gc.get_referents(one))
        elif type(one) in bounded and is_bounded(one):
            caches.append(one)
    for one in caches:
        for inner in gc.get_referents(one):
            held[id(inner)] = inner
            if not issubclass(type(inner), SHARED):
                held.update((id(part), part) for part in gc.get_referents(inner))
    cached = _by_type(one for key, one in held.items() if key not in ours and gc.is_tracked(one))
    for kind, number in _by_type(one for one in (held | ours).values() if gc.is_tracked(one)).items():
        numbers[kind] = numbers.get(kind, 0) - number
    return _named(numbers), _named(cached)


def _in_modules() -> list[Any]:
    """The bounded caches of modules. The collector does not name those that it has frozen, only what they hold anew."""
    modules = [vars(module) for module in [*sys.modules.values()] if isinstance(module, ModuleType)]
    return [one for names in modules for one in [*names.values()] if is_bounded(one)]


def may_be_bounded(kind: type) -> bool:
    """Whether ``is_bounded`` may be true of an object of this type."""
    plain = kind in (dict, list, set)
    return kind is CACHE or (issubclass(kind, collections.deque | dict | list | set) and not plain)


def is_bounded(one: Any) -> bool:
    """Whether it is a container that gives up what it holds, for what comes later, and will do so soon."""
    if type(one) is CACHE:
        return _is_near(one.cache_parameters()["maxsize"], one.cache_info().currsize)
    return may_be_bounded(type(one)) and _is_near(_limit_of(one), len(one))


def _is_near(bound: int | None, entries: int) -> bool:
    return bound is not None and bound <= max(NEAR, TIMES * entries)


def _limit_of(one: Any) -> int | None:
    """How many entries it holds at most, if it says so."""
    if type(one) is collections.deque:
        return one.maxlen
    if not hasattr(one, "__dict__"):
        return None
    limits = [limit for name in LIMITS if type(limit := vars(one).get(name)) is int]
    return limits[0] if limits else None


def _by_type(objects: Iterable[Any]) -> dict[type, int]:
    numbers: dict[type, int] = {}
    for kind in map(type, objects):
        numbers[kind] = numbers.get(kind, 0) + 1
    return numbers


def _named(numbers: Mapping[type, int]) -> dict[str, int]:
    named: dict[str, int] = {}
    for kind, number in numbers.items():
        name = f"{kind.__module__}.{kind.__qualname__}"
        named[name] = named.get(name, 0) + number
    return named


METER = Objects
METRICS = (
    Metric("leaked_objects", "objects left/step", WHOLE, hold="exact", optional=True, depends_on=("python",)),
    Metric("cached_objects", "objects in bounded caches/step", WHOLE, optional=True, depends_on=("python",)),
)
