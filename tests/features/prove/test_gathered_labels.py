"""Labels whose log-probabilities a script gathers itself."""

from typing import Any

import pytest

from perfsuite.features.prove.relations._gathered_labels import watch_gathers

torch = pytest.importorskip("torch", exc_type=ImportError)

ROWS, TOKENS, WORDS = 2, 6, 10


@pytest.fixture
def told(monkeypatch) -> list[tuple[Any, int]]:
    """What was gathered: labels, and the token of the first."""
    for owner, name in [(torch, "gather"), (torch.Tensor, "gather")]:
        monkeypatch.setattr(owner, name, getattr(owner, name))
    for owner in (torch, torch.nn.functional, torch.Tensor):
        monkeypatch.setattr(owner, "log_softmax", owner.log_softmax)
    found: list[tuple[Any, int]] = []
    watch_gathers(torch, lambda labels, first: found.append((labels.tolist(), first)))
    return found


LOSSES = {
    "all tokens": (lambda logits, labels: logits.log_softmax(-1).gather(-1, labels[..., None]), 0),
    "a completion": (lambda logits, labels: torch.gather(logits[:, 3:-1], 2, labels[:, 4:, None]), 3),
    "of its log-probabilities": (
        lambda logits, labels: torch.nn.functional.log_softmax(logits[:, 2:], -1).gather(2, index=labels[:, 2:, None]),
        2,
    ),
}


@pytest.mark.parametrize("name", LOSSES)
def test_labels_are_told_with_their_place(told, name):
    """Whatever of the logits is taken."""
    loss, first = LOSSES[name]
    logits = torch.randn(ROWS, TOKENS, WORDS, requires_grad=True)
    labels = torch.randint(WORDS, (ROWS, TOKENS))

    assert loss(logits, labels).shape[0] == ROWS
    [(found, at)] = told
    assert (found, at) == (labels[:, -len(found[0]) :].tolist(), first)


def test_other_gathers_are_no_labels(told):
    """Such as those of a router, of rollouts, or of embeddings."""
    logits = torch.randn(ROWS, TOKENS, WORDS, requires_grad=True)
    logits.gather(-1, torch.zeros(ROWS, TOKENS, 2, dtype=torch.long))
    logits.gather(1, torch.zeros(ROWS, 1, WORDS, dtype=torch.long))
    torch.gather(logits[0], 1, torch.zeros(TOKENS, 1, dtype=torch.long))
    with torch.no_grad():
        logits.gather(-1, torch.zeros(ROWS, TOKENS, 1, dtype=torch.long))

    assert not told
