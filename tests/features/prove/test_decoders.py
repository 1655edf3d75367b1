"""A decoder beside an encoder: what it is given must not hold the answer, in one call of a model without a launch."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from perfsuite.features.prove.relation import CannotTry
from perfsuite.features.prove.relations import _causal_probe, causal
from perfsuite.features.prove.relations._rows import fingerprints

torch = pytest.importorskip("torch", exc_type=ImportError)
from torch import nn  # noqa: E402
from transformers import T5Config, T5ForConditionalGeneration  # noqa: E402

T5 = T5Config(vocab_size=50, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2, decoder_start_token_id=0)


class Translator(nn.Module):
    """Of a user's own, which is called with two tensors."""

    def __init__(self, mask: bool = True) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(50, 16), nn.Linear(16, 50)
        self.body = nn.Transformer(16, 2, 1, 1, 32, dropout=0.0, batch_first=True)
        self.mask = nn.Transformer.generate_square_subsequent_mask(8) if mask else None

    def forward(self, source: Any, given: Any) -> Any:
        """Logits of the tokens after those that are given."""
        return self.head(self.body(self.embed(source), self.embed(given), tgt_mask=self.mask))


class Tagger(nn.Module):
    """Its second tensor is read by the loss alone."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(50, 16), nn.Linear(16, 50)

    def forward(self, tokens: Any, tags: Any) -> Any:
        """The loss and its logits."""
        logits = self.head(self.embed(tokens))
        return nn.functional.cross_entropy(logits.flatten(0, 1), tags.flatten()), logits


@pytest.fixture
def facts(monkeypatch) -> Any:
    """What the probe says of two training forwards."""
    monkeypatch.setattr(nn.functional, "cross_entropy", nn.functional.cross_entropy)
    torch.manual_seed(0)

    def ask(model: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
        script: Any = SimpleNamespace(
            watched=SimpleNamespace(away=nullcontext), line=lambda: "train.py:1", world_size=1, torch=torch
        )
        probe = _causal_probe.CausalProbe(torch, script)
        for _ in range(2):
            output = probe.around_forward(model.train(), args, kwargs, lambda: model(*args, **kwargs))
            if target is not None:
                nn.functional.cross_entropy(output.flatten(0, 1), target.flatten())
            probe.before_backward()
        assert not probe.failed
        return probe.facts()

    return ask


@pytest.mark.parametrize(
    ("shifts", "masks", "said"),
    [(True, True, []), (False, True, ["unshifted"]), (True, False, ["future"])],
)
def test_a_decoder_of_a_users_own(facts, shifts, masks, said):
    """It is given the tokens before those that the loss asks for, and sees no later ones."""
    source, whole = torch.randint(2, 50, (4, 8)), torch.randint(2, 50, (4, 9))
    target = whole[:, 1:]
    found = facts(Translator(masks), target, source, whole[:, :-1] if shifts else target)

    assert found["decodes"]
    assert [one.what for one in causal._judge([found]).remarks] == (said or ["held"])


@pytest.mark.parametrize(("shifts", "said"), [(True, "held"), (False, "unshifted")])
def test_the_decoder_of_a_model_of_transformers(facts, shifts, said):
    """Whose labels are padded by themselves."""
    ids, labels = torch.randint(2, 50, (4, 12)), torch.randint(2, 50, (4, 8))
    labels[1, 6:] = -100
    model = T5ForConditionalGeneration(T5)
    given = labels.masked_fill(labels == -100, 0)
    given = given if not shifts else nn.functional.pad(given[:, :-1], (1, 0))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "decoder_input_ids": given}
    found = facts(model, None, **inputs, labels=labels)

    assert [one.what for one in causal._judge([found]).remarks] == [said]


def test_targets_that_a_model_gets_for_its_loss_are_not_what_it_decodes(facts):
    """No output depends on them."""
    tokens, tags = torch.randint(2, 50, (2, 4, 8))
    found = facts(Tagger(), None, tokens, tags)

    assert not found["decodes"]
    with pytest.raises(CannotTry, match="other"):
        causal._judge([found])


def test_rows_of_a_decoder_are_the_same_with_more_padding():
    """Micro-batches of other sizes pad them otherwise; without a decoder, a padding token may be text."""
    short = {"input_ids": torch.arange(6)[None], "decoder_input_ids": torch.tensor([[0, 7, 8]])}
    long = short | {"decoder_input_ids": torch.tensor([[0, 7, 8, 0, 0]])}
    ended = short | {"decoder_input_ids": torch.tensor([[0, 7, 8, 1, 0]])}  # labels that are shifted, of a shorter row

    assert fingerprints(short, T5) == fingerprints(long, T5) == fingerprints(ended, T5)
    assert fingerprints(short, T5) != fingerprints(short | {"decoder_input_ids": torch.tensor([[0, 8, 7]])}, T5)
    assert fingerprints(short) != fingerprints(long)
    labels = {"labels": torch.tensor([[5, 6]])}
    assert fingerprints(labels) == fingerprints({"labels": torch.tensor([[5, 6, -100]])})
    assert fingerprints(labels) != fingerprints({"labels": torch.tensor([[5, -100, 6]])})
