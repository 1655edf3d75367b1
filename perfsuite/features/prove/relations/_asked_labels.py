"""What the labels of a loss ask for: tokens that the model was given, shifted by so many."""

from types import ModuleType
from typing import Any, NamedTuple

from perfsuite.features.prove.relations._special_tokens import Ends, edges, ends_of
from perfsuite.rank.script.probes import ProvedScript

SHARE = 0.9  # of the labels that must be the input's tokens
SHIFTS = (1, 0, 2)  # the usual one first
MASKED = 0.6  # of the tokens that are not as the labels: BERT masks 0.8 of 0.9


class Tokens(NamedTuple):
    """What a forward got: token numbers, [rows, tokens], which of them are no padding, what a decoder beside them got,
    and the config of a model of transformers. Each of the last three may be None.
    """

    ids: Any
    mask: Any
    decoded: Any
    config: Any


class AskedLabels:
    """Of all losses of a rank. ``shift`` is -1 as long as no labels are the model's tokens; ``decodes`` if they are
    those of a decoder. Of ``labels``, ``padded_labels`` are hidden by the mask, and ``given_labels`` ask for what the
    model was given in their place, beside a token that masks others. ``padding_labels`` ask for padding.
    """

    def __init__(self, torch: ModuleType, script: ProvedScript) -> None:
        self.torch, self.script = torch, script
        self.shift, self.decodes = -1, False
        self.labels = self.padded_labels = self.padding_labels = self.given_labels = 0
        self.ends = Ends()
        self.loss_line = ""

    def read(self, tokens: Tokens, target: Any, ignored: int, by_model: int, weighed: bool) -> None:
        """The labels of one loss. A model of transformers shifts them itself, ``by_model``, but not for a decoder.
        Where each label's loss is ``weighed`` afterwards, which of them count is not known.
        """
        if target.numel() % len(tokens.ids):
            return
        decodes = bool(getattr(tokens.config, "is_encoder_decoder", False))
        if decodes or weighed:  # the mask is that of what is encoded, or not the last word
            tokens = tokens._replace(mask=None)
        labels = target.detach().reshape(len(tokens.ids), -1)
        valid = labels != ignored
        if not weighed:
            self.padding_labels += self._of_padding(labels, valid, tokens)
        if (shift := _shift(labels, valid, tokens.ids)) is not None:
            self.shift = shift + by_model
            self._ask(shift, labels, valid, tokens)
        elif tokens.decoded is not None and (shift := _shift(labels, valid, tokens.decoded)) is not None:
            self.shift, self.decodes = shift, True
            self._ask(shift, labels, valid, tokens._replace(ids=tokens.decoded, mask=None))
        elif labels.shape == tokens.ids.shape and tokens.decoded is None and not decodes:
            self._ask(0, labels, valid, tokens)
        if labels.shape == tokens.ids.shape and self.shift < 1 and not weighed:
            self.given_labels += _given(labels, valid, tokens.ids)

    def _of_padding(self, labels: Any, valid: Any, tokens: Tokens) -> int:
        """How many labels ask for padding at the edges of rows, but for the first one, which may end a text. Where
        there are none, the row has what the model was given.
        """
        whole = self.torch.where(valid, labels, tokens.ids) if labels.shape == tokens.ids.shape else labels
        found = edges(self.torch, whole, getattr(tokens.config, "pad_token_id", None))
        if found is None:
            return 0
        inner = found & self.torch.nn.functional.pad(found, (1, 1), value=True).unfold(1, 3, 1).all(2)
        return int((inner & valid).sum())

    def _ask(self, shift: int, labels: Any, valid: Any, tokens: Tokens) -> None:
        ids, mask = tokens.ids, tokens.mask
        there = min(labels.shape[1], ids.shape[1] - shift)
        counts = valid[:, :there]
        self.loss_line = self.loss_line or self.script.line()
        self.labels += int(counts.sum())
        if mask is not None:
            self.padded_labels += int((counts & ~mask[:, shift : shift + there]).sum())
        asked = self.torch.zeros_like(ids, dtype=self.torch.bool)
        asked[:, shift : shift + there] = counts
        self.ends += ends_of(self.torch, ids, mask, asked, getattr(tokens.config, "eos_token_id", None))


def _shift(labels: Any, valid: Any, ids: Any) -> int | None:
    """Of the labels from these tokens; None if they are others."""
    for shift in SHIFTS:
        there = min(labels.shape[1], ids.shape[1] - shift)
        same, counts = labels[:, :there] == ids[:, shift : shift + there], valid[:, :there]
        if labels.shape[1] > ids.shape[1] or not counts.any():
            continue
        if float((same & counts).sum() / counts.sum()) >= SHARE:
            return shift
    return None


def _given(labels: Any, valid: Any, ids: Any) -> int:
    """How many labels ask for the token in their place, where one token masks most of the others. Fewer than half do
    if each label is of a token that was masked, of which a few stay.
    """
    same = labels == ids
    given, masked = int((same & valid).sum()), ids[~same & valid]
    if not len(masked) or given < int(valid.sum()) / 2:
        return 0
    usual = masked.mode().values
    return given if float((masked == usual).float().mean()) >= MASKED else 0
