"""Padding that a mask hides gets other embeddings, wherever the mask is given."""

from types import SimpleNamespace
from typing import Any

import pytest

from perfsuite.features.prove.relations._hidden_tokens import hidden_otherwise

torch = pytest.importorskip("torch", exc_type=ImportError)
from torch import nn  # noqa: E402
from torch.nn.modules import module as modules  # noqa: E402
from transformers import BertConfig, BertForMaskedLM  # noqa: E402

IDS = torch.tensor([[5, 6, 7, 8, 9, 0, 0], [5, 6, 7, 0, 0, 0, 0]])
MASK = IDS != 0
BERT = BertConfig(
    vocab_size=20,
    hidden_size=16,
    intermediate_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)


class Encoder(nn.Module):
    """It makes its mask itself, and gives it to a layer."""

    def __init__(self, pools: bool, segments: bool = False) -> None:
        super().__init__()
        self.pools, self.segments = pools, segments
        self.embed, self.position = nn.Embedding(20, 8), nn.Embedding(20, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 8, dropout=0.0, batch_first=True)

    def forward(self, ids: Any, others: Any) -> Any:
        """The mean of a row's tokens, or of all places."""
        pad = ids == 0
        at = torch.arange(ids.shape[1]).expand(ids.shape)
        x = self.layer(self.embed(ids) + self.position(at) + self.position(others), None, pad)
        keep = (~pad)[..., None] if self.pools else torch.ones_like(ids)[..., None]
        return (x * keep).sum(1) / keep.sum(1)


@pytest.fixture
def change(monkeypatch) -> Any:
    """The change of a script's part, which says whether it changed anything."""
    monkeypatch.setattr(nn.Module, "__call__", nn.Module.__call__)
    hooks = dict(modules._global_forward_hooks), dict(modules._global_forward_hooks_with_kwargs)
    script = SimpleNamespace(watched=SimpleNamespace(is_here=True), changed=False)
    torch.manual_seed(0)

    def begin() -> Any:
        hidden_otherwise(torch, script, "")  # type: ignore[arg-type]
        return script

    yield begin
    modules._global_forward_hooks.clear(), modules._global_forward_hooks.update(hooks[0])
    modules._global_forward_hooks_with_kwargs.clear(), modules._global_forward_hooks_with_kwargs.update(hooks[1])


def test_what_attention_mask_hides_does_not_reach_other_tokens(change):
    """It reaches what the model gives for the hidden ones."""
    model = BertForMaskedLM(BERT)
    inputs = {"input_ids": IDS, "attention_mask": MASK.long()}
    own = model(**inputs).logits
    script = change()
    moved = model(**inputs).logits

    assert script.changed
    assert torch.allclose(own[MASK], moved[MASK], atol=1e-6)
    assert not torch.allclose(own[~MASK], moved[~MASK], atol=1e-3)


@pytest.mark.parametrize("pools", [True, False])
def test_a_mask_that_a_model_makes_itself_is_found_inside(change, pools):
    """Numbers of positions and segments are no tokens, though some are those of padding."""
    model, segments = Encoder(pools), torch.zeros_like(IDS)
    own = model(IDS, segments)
    script = change()
    model(IDS, segments)  # here it is found

    assert torch.allclose(own, model(IDS, segments), atol=1e-6) is pools
    assert script.changed


def test_without_a_mask_nothing_is_changed(change):
    """Padding may be text."""
    model = nn.Embedding(20, 8)
    script = change()
    model(IDS)

    assert not script.changed
