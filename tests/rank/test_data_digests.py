"""Digests of what a training begins with."""

from types import SimpleNamespace

import numpy
import pytest

from perfsuite.rank.contents import MOST_ELEMENTS, MOST_NAMES, digest_of_tensor, digests_in, folded


def tensors():
    """The same numbers, and others: of another type, shape or order, and with one that differs."""
    import torch  # at the top it would take each worker of the tests a second

    usual = torch.arange(12).view(3, 4)
    others = [usual.int(), usual.view(4, 3), usual.flip(0), usual.roll(1, 1), usual.where(usual != 5, -100)]
    return usual, others


def test_equal_contents_have_equal_digests():
    """Also of a view that is not contiguous, and in half precision."""
    usual, others = tensors()
    digests = [digest_of_tensor(one) for one in (usual, *others, usual.bfloat16(), usual.bool(), usual[:0])]

    assert digest_of_tensor(usual.t().contiguous().t()) == digests[0] == digest_of_tensor(usual.clone())
    assert len(set(digests)) == len(digests)
    assert all(digests)


def test_of_a_large_tensor_each_row_is_read():
    """At elements that are evenly spaced: an embedding that another release initializes otherwise has another row."""
    import torch

    table = torch.zeros(4 * MOST_ELEMENTS // 64, 64)
    other = table.clone()
    other[777] = 1.0

    assert digest_of_tensor(table) != digest_of_tensor(other)


def test_without_elements_there_is_no_digest():
    """A tensor on meta has a shape alone."""
    import torch

    assert digest_of_tensor(torch.empty(4, device="meta")) == ""


def test_all_data_of_a_batch_have_names():
    """Tensors, arrays, texts and numbers; what autograd tracks depends on the weights."""
    import torch

    logits = torch.ones(1, requires_grad=True)
    batch = {"input_ids": torch.ones(2, 3), "texts": ["a", "b"], "rows": (numpy.ones(2), 7), "logits": logits}

    assert dict(digests_in(batch)).keys() == {"input_ids", "texts.item 0", "texts.item 1", "rows.item 0", "rows.item 1"}


@pytest.mark.parametrize(
    ("names", "kept"),
    [
        (["embed.weight", "head.weight"], {"embed.weight", "head.weight"}),
        (
            [f"layers.{layer}.{name}" for layer in range(40) for name in "ab"],
            {f"layers.{layer}" for layer in range(40)},
        ),
        ([f"item {number}" for number in range(MOST_NAMES + 1)], {""}),
    ],
)
def test_many_names_are_folded(names, kept):
    """By the paths of their modules; a change of any of them changes the digest."""
    digests = {name: str(number) for number, name in enumerate(names)}
    first, other = folded(digests), folded(digests | {names[1]: "other"})

    assert first.keys() == kept
    assert sum(first[name] != other[name] for name in kept) == 1


def test_a_digest_leaves_a_tensor_to_be_freed():
    """FSDP frees what it has gathered, which it cannot while numpy shares it."""
    import torch

    from perfsuite.rank.script.probes import digest

    tensor = torch.ones(4)

    assert digest(tensor) == digest(torch.ones(4)) != digest(torch.zeros(4))
    tensor.untyped_storage().resize_(0)


def test_tensors_of_an_object_are_data():
    """Such as a graph's, in its stores. Its other attributes may differ in each launch, and a module has weights."""
    import torch

    store = SimpleNamespace(nodes=torch.ones(3, 2), kept={"edges": torch.ones(2, 4)}, path="/tmp/of-this-launch")
    graph = SimpleNamespace(_store=store, made=0.5, model=torch.nn.Linear(2, 2), function=tensors)
    store.graph = graph

    assert dict(digests_in([graph])).keys() == {"item 0._store.nodes", "item 0._store.kept.edges"}
