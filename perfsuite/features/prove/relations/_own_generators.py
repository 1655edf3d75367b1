"""Generators of random numbers that a data set keeps for itself: each worker has a copy, which draws the same.

A generator that the data set seeds anew, for a sample or in a worker, is no such copy. So is one that it drew its data
from, and draws from no more.
"""

import copy
import random
import sys
from collections.abc import Iterator
from typing import Any

from perfsuite.records.digests import digest_of

INSIDE = ("dataset", "datasets", "transform", "transforms")  # attributes that may have some, too
DEPTH = 4
NUMBERS = 624  # that a Mersenne Twister makes at once, each of 32 bits
MOST = 1000  # times that it makes them anew for a batch


class OwnGenerators:
    """Those of a data set in a worker, from its begin."""

    def __init__(self, dataset: Any) -> None:
        self._found = dict(generators_of(dataset, type(dataset).__name__))
        self._begun = {name: copy.deepcopy(one) for name, one in self._found.items()}

    def drawn(self) -> dict[str, str]:
        """Those from which numbers were drawn since then, and a digest of where they began."""
        return {
            name: digest_of(repr(_state(begun)).encode())
            for name, begun in self._begun.items()
            if _goes_on(begun, self._found[name])
        }


def generators_of(owner: Any, name: str, depth: int = DEPTH) -> Iterator[tuple[str, Any]]:
    """By their names, as ``Images.rng``: of random, numpy and torch."""
    numpy, torch = (sys.modules.get(library) for library in ("numpy", "torch"))
    kinds: tuple[type, ...] = (random.Random,)
    kinds += (numpy.random.RandomState, numpy.random.Generator) if numpy else ()
    kinds += (torch.Generator,) if torch else ()
    for key, value in getattr(owner, "__dict__", {}).items():
        if isinstance(value, kinds):
            yield f"{name}.{key}", value
        elif key in INSIDE and depth:
            for one in value if isinstance(value, list | tuple) else [value]:
                yield from generators_of(one, type(one).__name__, depth - 1)


def _state(generator: Any) -> Any:
    if isinstance(generator, random.Random):
        return generator.getstate()
    if hasattr(generator, "bit_generator"):
        return generator.bit_generator.state
    state = generator.get_state()
    return state.tolist() if hasattr(state, "tolist") else (state[1].tolist(), *state[2:])


def _goes_on(before: Any, now: Any) -> bool:
    """Whether it has drawn numbers, and was not seeded anew."""
    if _state(before) == _state(now):
        return False
    if hasattr(now, "initial_seed"):
        return bool(before.initial_seed() == now.initial_seed())
    if hasattr(now, "bit_generator"):
        begun, state = (one.bit_generator.state["state"] for one in (before, now))
        return all(begun[key] == state[key] for key in ("inc", "key") if key in begun)
    return _makes_anew(copy.deepcopy(before), now)


def _makes_anew(before: Any, now: Any) -> bool:
    """Whether a Mersenne Twister comes to the numbers of another one if it draws more."""
    of_random = isinstance(now, random.Random)

    def numbers(one: Any) -> Any:
        return one.getstate()[1][:NUMBERS] if of_random else one.get_state()[1].tolist()

    wanted = numbers(now)
    for _ in range(MOST):
        if numbers(before) == wanted:
            return True
        before.getrandbits(32 * NUMBERS) if of_random else before.bytes(4 * NUMBERS)
    return False
