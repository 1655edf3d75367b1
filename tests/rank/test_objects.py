"""Objects that a step leaves alive are counted, by type, and none where none are left."""

import functools
import gc
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from sampling import slow_unless

from perfsuite.meters.objects import Objects, count, is_bounded
from perfsuite.rank.garbage import Garbage
from perfsuite.records.sample import Reading

ENGINES = ["gpt2_tiny-single-cpu_x1", "gpt2_tiny-ddp+acc2+hf_trainer-cpu_x2", "t5_tiny-zero3+bf16-cpu_x2"]


@pytest.mark.parametrize("cell", slow_unless(lambda cell: "t5" not in cell, ENGINES))
def test_a_good_step_leaves_nothing(measure, cell):
    """Neither the libraries nor perfsuite's own meters keep anything per step."""
    left = measure(cell, steps=3).readings["leaked_objects"]

    assert (left.value, left.suspects) == (0, {})


def test_a_hoard_is_counted_and_named(measure):
    """Three dictionaries and four lists of every step, by their types."""
    left = measure("gpt2_tiny-single-cpu_x1", "hoards", steps=3).readings["leaked_objects"]

    assert left.value == 7
    assert left.parts == {"builtins": 7}
    assert left.suspects == {"builtins: builtins.list": 4, "builtins: builtins.dict": 3}


class Kept:
    """An object that only these tests make."""


class Holder:
    """As torch's weak references of storages, which have a method of their own."""

    def __init__(self):
        self.kept = Kept()


class Limited(dict):
    """As torch's cache of shared storages."""

    def __init__(self, limit=128):
        self.limit = limit


CACHES: dict[str, Callable[[], Callable[[int], object]]] = {
    "deque": lambda: keeps_in(deque(maxlen=9)),
    "lru_cache": lambda: functools.lru_cache(maxsize=9)(lambda number: Kept()),
    "limited": lambda: stores_in(Limited()),
    "holders": lambda: keeps_in(deque(maxlen=9), Holder),
}
LEAKS: dict[str, Callable[[], Callable[[int], object]]] = {
    "list": lambda: keeps_in([]),
    "deque": lambda: keeps_in(deque()),
    "vast deque": lambda: keeps_in(deque(maxlen=10**9)),
    "vast lru_cache": lambda: functools.lru_cache(maxsize=10**9)(lambda number: Kept()),
    "vast limit": lambda: stores_in(Limited(10**9)),
}


def keeps_in(kept: Any, make: Callable[[], Any] = lambda: (0, Kept())) -> Callable[[int], object]:
    return lambda number: kept.append(make())


def stores_in(kept: Any) -> Callable[[int], object]:
    return lambda number: kept.update({number: Kept()})


@pytest.fixture
def nothing_else():
    """Objects that other tests have made are not looked at."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("nothing_else")
@pytest.mark.parametrize(
    ("make", "grown"),
    [*((one, [0, 4]) for one in CACHES.values()), *((one, [4, 0]) for one in LEAKS.values())],
    ids=[*CACHES, *(f"leak-{one}" for one in LEAKS)],
)
def test_what_a_bounded_cache_holds_is_no_leak(make, grown):
    """It fills for some steps, and a leak grows for ever."""
    keep = make()
    name = f"{Kept.__module__}.Kept"
    before = [one.get(name, 0) for one in count(Garbage())]
    for number in range(4):
        keep(number)
    after = [one.get(name, 0) for one in count(Garbage())]

    assert [later - earlier for earlier, later in zip(before, after, strict=True)] == grown


def test_a_frozen_cache_of_a_module_is_still_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As torch's of shared storages, after a script's gc.freeze()."""
    name = f"{Kept.__module__}.{Kept.__qualname__}"
    kept: deque[Any] = deque(maxlen=9)
    monkeypatch.setattr("small_scripts.kept", kept, raising=False)
    gc.freeze()
    try:
        before = count(Garbage())
        kept.extend(Kept() for _ in range(5))
        after = count(Garbage())
    finally:
        gc.unfreeze()

    assert [after[held].get(name, 0) - before[held].get(name, 0) for held in (0, 1)] == [0, 5]


def test_an_object_is_not_asked_for_its_class():
    """torch.distributed's reduce_op warns whoever asks, and a proxy answers for what it stands for."""

    class Proxy:
        @property  # type: ignore[misc]  # as proxies do
        def __class__(self) -> type:
            raise AssertionError

    assert not is_bounded(Proxy())


@pytest.mark.parametrize(("rows", "told"), [([0, 5, 15, 25, 35], 1), ([0, 5, 15, 25], 0), ([0, 10, 20, 30, 30], 0)])
def test_what_begins_within_the_first_later_block_is_told(rows, told):
    """Three whole blocks of ten steps say that it goes on."""
    session: Any = SimpleNamespace(strategy=SimpleNamespace(engine=SimpleNamespace(own=True)))
    objects = Objects(session)
    objects.counted_from = 0
    for number in rows:
        objects.later_counts.add({"train.Row": 100 + number})

    found = objects.later_readings({"leaked_objects": Reading(value=0)})

    assert found["leaked_objects"].value == told
