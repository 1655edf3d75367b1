"""Generators of random numbers that a data set keeps for itself."""

import random
from types import SimpleNamespace
from typing import Any

import pytest

from perfsuite.features.prove.relations._own_generators import OwnGenerators, generators_of

numpy = pytest.importorskip("numpy")
torch = pytest.importorskip("torch", exc_type=ImportError)

SEED = 3
DRAWS: dict[str, tuple[Any, Any, Any]] = {  # made, drawn from by so much, seeded anew
    "random": (
        lambda: random.Random(SEED),
        lambda one, count: [one.random() for _ in range(count)],
        lambda one: one.seed(5),
    ),
    "numpy": (
        lambda: numpy.random.RandomState(SEED),
        lambda one, count: one.randn(count),
        lambda one: one.seed(5),
    ),
    "numpy's newer": (
        lambda: numpy.random.default_rng(SEED),
        lambda one, count: one.normal(size=count),
        lambda one: setattr(one.bit_generator, "state", numpy.random.default_rng(5).bit_generator.state),
    ),
    "torch": (
        lambda: torch.Generator().manual_seed(SEED),
        lambda one, count: torch.rand(count, generator=one),
        lambda one: one.manual_seed(5),
    ),
}


@pytest.mark.parametrize("kind", DRAWS)
@pytest.mark.parametrize("count", [1, 5000])
def test_a_copy_that_goes_on_is_known_by_where_it_began(kind, count):
    """Two workers have the same, whatever they draw from it."""
    make, draw, seed = DRAWS[kind]
    found = []
    for more in (0, 7):
        data = SimpleNamespace(rng=make())
        own = OwnGenerators(data)
        assert not own.drawn()
        draw(data.rng, count + more)
        found.append(own.drawn())
    assert found[0] == found[1]
    assert list(found[0]) == ["SimpleNamespace.rng"]

    seed(data.rng)
    draw(data.rng, count)
    assert not own.drawn()


def test_generators_inside_of_others_are_found():
    """Of a part of a data set, and of what changes its samples."""
    changes = SimpleNamespace(transforms=[SimpleNamespace(of=random.Random()), "text"])
    inner = SimpleNamespace(rng=random.Random(), transform=changes, size=3)
    inner.dataset = inner

    names = [name for name, _ in generators_of(SimpleNamespace(dataset=inner), "Subset")]
    assert sorted(set(names)) == ["SimpleNamespace.of", "SimpleNamespace.rng"]
