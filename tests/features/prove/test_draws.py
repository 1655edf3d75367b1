"""Dropout of a user's own is taken out where gradients are compared."""

import random
from types import SimpleNamespace
from typing import Any

import numpy
import pytest

from perfsuite.features.prove.relations import _sketches
from perfsuite.features.prove.relations._changes import other_order, rounding_of
from perfsuite.features.prove.relations._draws import without_draws
from perfsuite.features.prove.relations._sample_draws import with_own_draws

torch = pytest.importorskip("torch", exc_type=ImportError)
from torch.utils.data._utils import fetch  # noqa: E402

FUNCTIONS = ("rand", "randn", "rand_like", "randn_like", "randint", "randperm", "bernoulli")
METHODS = ("bernoulli", "bernoulli_", "uniform_", "normal_", "exponential_")
SIZE = (2, 3)


@pytest.fixture
def script(monkeypatch) -> Any:
    """A script's part, which is inside of a forward if ``running`` says so."""
    for owner, names in ((torch, FUNCTIONS), (torch.Tensor, METHODS)):
        for name in names:
            monkeypatch.setattr(owner, name, getattr(owner, name))
    running: list[str] = []
    watched = SimpleNamespace(is_here=True, runs=running.__contains__, recomputing=False, has_batch=False)
    found: Any = SimpleNamespace(watched=watched, running=running, dropout=False)
    without_draws(torch, found)
    return found


@pytest.mark.parametrize(
    ("draw", "value"),
    [
        (lambda like: torch.rand(2, 3), 0.5),
        (lambda like: torch.rand(SIZE, generator=torch.Generator(), dtype=torch.float64), 0.5),
        (lambda like: torch.randn(SIZE), 0.5),
        (torch.rand_like, 0.5),
        (torch.randn_like, 0.5),
        (lambda like: torch.randint(10, SIZE), 5),
        (lambda like: torch.randint(2, 10, SIZE), 6),
        (lambda like: torch.randint(low=2, high=10, size=SIZE), 6),
        (lambda like: torch.randint(0, 10, size=SIZE, dtype=torch.int32), 5),
        (lambda like: torch.bernoulli(like + 0.9), 1.0),
        (lambda like: (like + 0.1).bernoulli(), 0.0),
        (lambda like: like.bernoulli_(0.9), 1.0),
        (lambda like: like.bernoulli_(torch.full(SIZE, 0.1)), 0.0),
        (lambda like: like.uniform_(2, 4), 3.0),
        (lambda like: like.normal_(1, 2), 2.0),
        (lambda like: like.exponential_(4.0), 0.25),
    ],
)
def test_a_forward_draws_numbers_that_are_all_alike(script, draw, value):
    """And the random state stays. Outside of it, numbers are as they were."""
    like, state = torch.zeros(SIZE), torch.get_rng_state()
    script.running.append("forward")
    draw = getattr(torch, draw.__name__, draw)  # the one of now
    found = draw(like)

    assert (tuple(found.shape), set(found.flatten().tolist()), script.dropout) == (SIZE, {value}, True)
    assert torch.equal(state, torch.get_rng_state())
    script.running.clear()
    draw(torch.full(SIZE, 0.05))
    torch.rand(1)
    assert not torch.equal(state, torch.get_rng_state())


def test_an_order_is_that_of_the_rows(script):
    """So is one of masked patches, by the numbers that they draw."""
    assert torch.randperm(50).tolist() != list(range(50))
    script.running.append("forward")
    assert torch.randperm(50).tolist() == list(range(50))


def test_noise_that_a_script_draws_for_its_batch_is_alike(script):
    """As a model that removes noise is trained."""
    script.watched.has_batch = True
    assert torch.randn(SIZE).unique().tolist() == [0.5]
    assert torch.randint(0, 1000, (2,)).tolist() == [500, 500]


def test_other_rounding_is_measured_beside_it(script):
    """Its noise is perfsuite's own, and no number of the script's forward."""
    layer, one = torch.nn.Linear(64, 64), torch.ones(3, 64)
    script.running.append("forward")
    plain = layer(one)
    with rounding_of(torch):
        moved = layer(one)

    assert 1e-9 < (moved - plain).abs().mean().item() < 1e-5
    assert (moved - plain).unique().numel() > 10


def test_a_sketch_has_random_signs_beside_it(script):
    """Also one that is made in a forward first of all."""
    _sketches._signs.cache_clear()
    script.running.append("forward")
    inside = _sketches._signs("cpu")
    script.running.clear()
    _sketches._signs.cache_clear()

    assert torch.equal(inside, _sketches._signs("cpu"))
    assert abs(float(inside.mean())) < 0.01


@pytest.mark.parametrize(
    ("rows", "order"),
    [
        (1, [0]),
        (2, [0, 1]),
        (4, [1, 0, 3, 2]),
        (5, [4, 3, 2, 1, 0]),
        (6, [2, 1, 0, 5, 4, 3]),
        (8, [2, 3, 0, 1, 6, 7, 4, 5]),
        (9, [2, 1, 0, 5, 4, 3, 8, 7, 6]),
    ],
)
def test_rows_that_belong_to_each_other_stay_together(rows, order):
    """Where rounding is measured by another order of a batch."""
    assert other_order(rows) == order


class Augmented:
    """Each sample is its index beside what three generators draw."""

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.tensor([index, random.random(), numpy.random.rand(), torch.rand(()).item()])


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("data", [Augmented(), torch.utils.data.Subset(Augmented(), range(8))])
def test_a_sample_decides_what_is_drawn_for_it(monkeypatch, data, workers):
    """However a batch is split, and without a change of what the loop draws."""
    monkeypatch.setattr(fetch._MapDatasetFetcher, "fetch", fetch._MapDatasetFetcher.fetch)

    def rows(size: int) -> Any:
        loader = torch.utils.data.DataLoader(data, batch_size=size, num_workers=workers)
        return torch.cat(list(loader))

    assert not torch.equal(rows(2), rows(4))
    with_own_draws(torch)
    before = random.getstate(), repr(numpy.random.get_state())

    assert torch.equal(rows(2), rows(4))
    assert len(set(rows(4)[:, 3].tolist())) == 8
    assert (random.getstate(), repr(numpy.random.get_state())) == before
