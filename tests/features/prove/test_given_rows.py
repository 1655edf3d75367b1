"""Rows are the same with more padding, if the model hides it itself."""

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest

from perfsuite.features.prove.relations._given_rows import COLLECTIVES, GivenRows

torch = pytest.importorskip("torch", exc_type=ImportError)
from torch import nn  # noqa: E402


class Pooling(nn.Module):
    """The mean of the tokens that are no padding, or of all."""

    def __init__(self, hides: bool) -> None:
        super().__init__()
        self.hides, self.embed, self.head = hides, nn.Embedding(20, 8), nn.Linear(8, 3)

    def forward(self, ids: Any) -> Any:
        """For each row."""
        real = (ids > 0) if self.hides else torch.ones_like(ids, dtype=torch.bool)
        return self.head((self.embed(ids) * real[..., None]).sum(1) / real.sum(1, keepdim=True))


class Causal(nn.Module):
    """Each token sees those before it, or all."""

    def __init__(self, hides: bool) -> None:
        super().__init__()
        self.hides, self.embed = hides, nn.Embedding(20, 8)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, ids: Any) -> Any:
        """For each token, and a loss that depends on the length."""
        self.calls.add_(1)  # type: ignore[operator]
        values = self.embed(ids)
        return values.sum(), values.cumsum(1) if self.hides else values.cumsum(1) + values.mean(1, keepdim=True)


def given(running: str = "") -> GivenRows:
    """With a collective that runs in that phase; the first forward only shows whether one does."""
    watched: Any = SimpleNamespace(runs=running.__eq__)
    before = {name: getattr(torch.distributed, name) for name in COLLECTIVES}
    try:
        rows = GivenRows(torch, watched)
        with contextlib.suppress(Exception):  # without a group
            torch.distributed.all_reduce(torch.ones(1))
    finally:
        for name, one in before.items():
            setattr(torch.distributed, name, one)
    rows.read(nn.Linear(1, 1), (torch.ones(1, 1),), {})
    rows.end_step(keeps=False)
    return rows


def rows_of(model: nn.Module, *batches: list[list[int]]) -> list[str]:
    """One step of these micro-batches, each padded to its longest row."""
    rows = given()
    for batch in batches:
        longest = max(map(len, batch))
        ids = torch.tensor([row + [0] * (longest - len(row)) for row in batch])
        rows.read(model, (ids,), {})
    rows.end_step(keeps=True)
    return rows.of_steps()[0]


@pytest.mark.parametrize("kind", [Pooling, Causal])
@pytest.mark.parametrize("hides", [True, False])
def test_padding_that_a_model_hides_is_no_part_of_a_row(kind, hides):
    """Else another length is another row: what the model gives is, too."""
    torch.manual_seed(0)
    first, second = [[1, 2, 3, 4, 5, 6, 7], [3, 4, 5, 6]], [[5, 6, 7, 8], [7, 8, 9, 10, 11, 12]]
    model = kind(hides)

    assert (rows_of(model, first, second) == rows_of(model, first + second)) is hides
    assert rows_of(model, first, second) != rows_of(model, first, first)
    assert not any(buffer.any() for buffer in model.buffers())


def test_text_that_ends_with_a_token_twice_is_no_padding():
    """Few rows do. A model that sees no later tokens hides any."""
    torch.manual_seed(0)
    text = [[*range(1, 7), number % 10, number % 9] for number in range(40)]
    model = Causal(True)

    assert rows_of(model, text[:20], text[20:]) == rows_of(model, text)
    assert len(set(rows_of(model, text))) == 40


def test_a_model_that_waits_for_other_ranks_is_asked_for_nothing():
    """They may have no padding, and not call theirs."""
    for running, calls in (("forward", 0), ("backward", 2)):
        model, rows = Causal(True), given(running)
        seen: list[Any] = []
        model.register_forward_hook(lambda module, args, output, seen=seen: seen.append(args))
        rows.read(model, (torch.tensor([[1, 2, 3, 0, 0]]),), {})
        assert len(seen) == calls


def test_rows_of_a_step_that_is_made_again_are_forgotten():
    """A GradScaler skipped it."""
    rows = given()
    for keeps in (False, True):
        rows.read(Pooling(True), (torch.ones(2, 4),), {})
        rows.end_step(keeps)

    assert len(rows.of_steps()[0]) == 2
