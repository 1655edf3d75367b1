"""Objects that a step leaves alive are counted, by type, and none where none are left."""

import functools
from collections import deque
from typing import Any

import pytest
from sampling import slow_unless

from perfsuite.meters.objects import count, is_bounded

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


@functools.lru_cache(maxsize=9)
def remembered(number):
    return Kept()


@functools.lru_cache(maxsize=10**9)
def always_remembered(number):
    return Kept()


LIMITED, LIST = Limited(), []
VAST, VAST_LINE = Limited(10**9), deque[Any](maxlen=10**9)
LINE: deque[Any] = deque(maxlen=9)
UNBOUNDED: deque[Any] = deque()
CACHES = {
    "deque": lambda number: LINE.append((number, Kept())),
    "lru_cache": lambda number: remembered(number),
    "limited": lambda number: LIMITED.update({number: Kept()}),
    "holders": lambda number: LINE.append(Holder()),
}
LEAKS = {
    "list": lambda number: LIST.append(Kept()),
    "deque": lambda number: UNBOUNDED.append(Kept()),
    "vast deque": lambda number: VAST_LINE.append(Kept()),
    "vast lru_cache": lambda number: always_remembered(number),
    "vast limit": lambda number: VAST.update({number: Kept()}),
}


@pytest.mark.parametrize("keep", [*CACHES.values(), *LEAKS.values()], ids=[*CACHES, *(f"leak-{one}" for one in LEAKS)])
def test_what_a_bounded_cache_holds_is_no_leak(keep):
    """It fills for some steps, and a leak grows for ever."""
    name = f"{Kept.__module__}.Kept"
    before = [one.get(name, 0) for one in count()]
    for number in range(4):
        keep(number)
    after = [one.get(name, 0) for one in count()]

    grown = [later - earlier for earlier, later in zip(before, after, strict=True)]
    assert grown == ([4, 0] if keep in LEAKS.values() else [0, 4])


def test_an_object_is_not_asked_for_its_class():
    """torch.distributed's reduce_op warns whoever asks, and a proxy answers for what it stands for."""

    class Proxy:
        @property  # type: ignore[misc]  # as proxies do
        def __class__(self) -> type:
            raise AssertionError

    assert not is_bounded(Proxy())
