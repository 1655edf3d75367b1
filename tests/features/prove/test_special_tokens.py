"""Padding that no mask hides, and end tokens that no label asks for: seen in one call of a model, without a launch."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from perfsuite.features.prove.relation import CannotTry
from perfsuite.features.prove.relations import _causal_probe, causal
from perfsuite.features.prove.relations._asked_labels import AskedLabels, Tokens
from perfsuite.features.prove.relations._rows import fingerprints
from perfsuite.features.prove.relations._special_tokens import edges

torch = pytest.importorskip("torch", exc_type=ImportError)
from transformers import (  # noqa: E402
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    GPT2Config,
    GPT2ForSequenceClassification,
    GPT2LMHeadModel,
    T5Config,
    T5ForConditionalGeneration,
)

PAD, END = 0, 1
LENGTHS = torch.tensor([5, 9, 12, 7])
TINY = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
BERT = BertConfig(vocab_size=50, num_labels=3, pad_token_id=PAD, **TINY)
GPT2 = GPT2Config(
    vocab_size=50, num_labels=3, pad_token_id=PAD, eos_token_id=END, n_embd=16, n_layer=1, n_head=2, resid_pdrop=0.0
)
T5 = T5Config(vocab_size=50, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2, decoder_start_token_id=PAD)


@pytest.fixture
def facts(monkeypatch) -> Any:
    """What the probe says of one training forward."""
    monkeypatch.setattr(torch.nn.functional, "cross_entropy", torch.nn.functional.cross_entropy)

    def ask(model: Any, **inputs: Any) -> dict[str, Any]:
        watched = SimpleNamespace(away=nullcontext)
        script: Any = SimpleNamespace(watched=watched, line=lambda: "train.py:1", world_size=1, torch=torch)
        probe = _causal_probe.CausalProbe(torch, script)
        probe.around_forward(model.train(), (), inputs, lambda: model(**inputs))
        assert not probe.failed
        found: dict[str, Any] = probe.facts()
        return found

    return ask


def rows(left: bool = False) -> tuple[Any, Any]:
    """Tokens that end with an end token, and a mask of them; padding is at the ``left``, or at the right."""
    torch.manual_seed(0)
    mask = (torch.arange(12) < LENGTHS[:, None]).long()
    ids = torch.randint(2, 50, (4, 12)) * mask
    ids.scatter_(1, LENGTHS[:, None] - 1, END)
    return (ids.flip(1), mask.flip(1)) if left else (ids, mask)


@pytest.mark.parametrize(
    ("make", "left", "is_wrong"),
    [
        (lambda: BertForSequenceClassification(BERT), False, True),
        (lambda: GPT2ForSequenceClassification(GPT2), False, False),
        (lambda: GPT2ForSequenceClassification(GPT2), True, True),
    ],
    ids=["it sees all", "padding is later", "padding is earlier"],
)
@pytest.mark.parametrize("given", ["no mask", "a mask of ones"])
def test_padding_that_nothing_hides_is_wrong_where_it_is_seen(facts, make, left, is_wrong, given):
    """A causal model does not see what is at the right."""
    torch.manual_seed(0)
    ids, mask = rows(left)
    found = facts(make(), input_ids=ids, **({} if given == "no mask" else {"attention_mask": torch.ones_like(mask)}))

    assert [one["kind"] for one in found["exchanges"] if one["kind"] != "future"] == ["unhidden"]
    if is_wrong:
        assert [one.what for one in causal._judge([found]).remarks] == ["unhidden"]
    else:
        with pytest.raises(CannotTry, match="other"):
            causal._judge([found])


@pytest.mark.parametrize(("asked", "said"), [(True, []), (False, ["endless"])])
def test_an_end_token_that_no_label_asks_for_is_named(facts, asked, said):
    """Padding often has the same token, and a collator hides both."""
    ids, mask = rows()
    ignored = (mask == 0) | torch.tensor(not asked) & (ids == END)
    found = facts(GPT2LMHeadModel(GPT2), input_ids=ids, attention_mask=mask, labels=ids.masked_fill(ignored, -100))

    assert [one.what for one in causal._judge([found]).remarks if one.what == "endless"] == said


@pytest.mark.parametrize(("ignored", "said"), [(PAD, ["asked"]), (-100, [])])
def test_labels_that_ask_for_padding_are_told(facts, ignored, said):
    """Of an encoder and decoder, whose labels are padded by themselves."""
    torch.manual_seed(0)
    ids, mask = rows()
    labels = ids.masked_fill(mask == 0, ignored)
    found = facts(T5ForConditionalGeneration(T5), input_ids=ids, attention_mask=mask, labels=labels)

    if said:
        assert [one.what for one in causal._judge([found]).remarks] == said
    else:
        with pytest.raises(CannotTry, match="other"):
            causal._judge([found])


MASK = 2


@pytest.mark.parametrize(
    ("fault", "said"),
    [("", []), ("all", ["given"]), ("padding", ["asked"]), ("hides text", ["padded"]), ("shows padding", ["unhidden"])],
)
def test_tokens_that_a_mask_token_hides(facts, fault, said):
    """A model that is asked for them sees all others."""
    torch.manual_seed(0)
    ids, mask = rows()
    text = (mask == 0 if fault == "padding" else mask == 1) & (ids > END) | (ids == PAD) & (fault == "padding")
    chosen = (torch.rand(ids.shape) < 0.4) & text
    given = ids.masked_fill(chosen, MASK)
    mask = {"hides text": 1 - mask, "shows padding": torch.ones_like(mask)}.get(fault, (given != PAD).long())
    labels = ids if fault == "all" else ids.masked_fill(~chosen, -100)
    if fault == "all":
        labels = labels.masked_fill(ids == PAD, -100)
    found = facts(BertForMaskedLM(BERT), input_ids=given, attention_mask=mask, labels=labels)

    if said:
        assert [one.what for one in causal._judge([found]).remarks][: len(said)] == said
    else:
        with pytest.raises(CannotTry, match="other"):
            causal._judge([found])


def test_labels_whose_losses_are_weighed_afterwards_are_not_judged(facts):
    """Padding has labels, and the script multiplies their losses with 0."""
    torch.manual_seed(0)
    ids, mask = rows()
    model = GPT2LMHeadModel(GPT2)

    class Weighing(torch.nn.Module):  # type: ignore[misc, name-defined]
        """With a loss of its own."""

        def __init__(self) -> None:
            super().__init__()
            self.model, self.config = model, model.config

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            """Its logits."""
            logits = self.model(input_ids=input_ids, attention_mask=attention_mask).logits
            wrong = torch.nn.functional.cross_entropy(
                logits[:, :-1].flatten(0, 1), input_ids[:, 1:].flatten(), reduction="none"
            )
            assert (wrong * attention_mask[:, 1:].flatten()).sum() > 0
            return logits

    found = facts(Weighing(), input_ids=ids, attention_mask=mask)

    assert (found["shift"], found["padded_labels"], found["padding_labels"]) == (1, 0, 0)


def test_a_second_loss_of_other_labels_says_nothing_of_the_first():
    """As one of tags, which has the tokens' shape."""
    script: Any = SimpleNamespace(line=lambda: "train.py:1")
    asked, (ids, mask) = AskedLabels(torch, script), rows()
    tokens = Tokens(ids, mask.bool(), None, GPT2)
    for labels in (ids[:, 1:], (ids + 7) % 50):
        asked.read(tokens, labels.flatten(), -100, 0, False)

    assert asked.shift == 1


def test_a_few_equal_tokens_are_no_padding():
    """Nor is a whole row of them, as data of a benchmark have."""
    text = torch.tensor([[0, 0, 0, 5, 6, 7, 8, 9], [0, 0, 0, 0, 0, 0, 0, 0], [4, 5, 0, 0, 0, 0, 0, 9]])
    assert edges(torch, text, PAD) is None
    assert edges(torch, text, None) is None
    found = edges(torch, torch.tensor([[0, 0, 0, 0, 5, 6], [7, 8, 9, 5, 4, 0]]), PAD)
    assert found is not None
    assert found.long().tolist() == [[1, 1, 1, 1, 0, 0], [0, 0, 0, 0, 0, 1]]


@pytest.mark.parametrize("name", ["attention_mask", "valid"])
def test_rows_are_known_whatever_they_are_padded_to(name):
    """Features, too, by the one mask that there is."""
    torch.manual_seed(0)
    long = torch.rand(2, 9, 3)
    mask = torch.arange(9) < torch.tensor([[4], [6]])
    short = fingerprints({"args": [long[:, :6] * mask[:, :6, None]], name: mask[:, :6]})

    assert fingerprints({"args": [long * mask[..., None]], name: mask}) == short
    assert fingerprints({"args": [(long + 1) * mask[..., None]], name: mask}) != short
