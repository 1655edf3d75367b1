"""What a model gives for tokens that must not know others: it is called again with those exchanged."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

import msgspec

from perfsuite.features.prove.relations._changes import rounding_of
from perfsuite.features.prove.relations._compared import ALLOWED
from perfsuite.features.prove.relations._other_tokens import (
    IGNORED,
    asking_tokens,
    by_row,
    by_token,
    documents_of,
    embedded_otherwise,
    with_other,
)
from perfsuite.features.prove.relations._rows import MASK
from perfsuite.features.prove.relations._sketches import distance, row_sketch, size
from perfsuite.features.prove.relations._special_tokens import Ends, edges, ends_of
from perfsuite.rank.memory.whereabouts import inner_model
from perfsuite.rank.norms import shards_of
from perfsuite.rank.script.batch_size import tensors_in
from perfsuite.rank.script.probes import Probe, ProvedScript, plain
from perfsuite.rank.script.watched import replace
from perfsuite.rank.torch_types import Module
from perfsuite.records.record import Record

PROBE = f"{__name__}:CausalProbe"
TRIES = 3  # forwards whose tokens are exchanged
FEWEST = 4  # tokens of a row
SHARE = 0.9  # of the labels that must be the input's tokens
PADDING = ("padding", "unhidden")
KINDS = ("future", "neighbours", *PADDING)


class TokenExchange(Record, frozen=True, kw_only=True):
    """Tokens of one kind were exchanged: by how much what must not know them moved, as a share of its norm, how much
    rounding explains, and where it began.
    """

    kind: str
    moved: float
    allowed: float
    module: str = ""


class CausalFacts(Record, frozen=True, kw_only=True):
    """Of one rank. ``shift`` is that of the loss's labels from the input's tokens, -1 if they are others.
    ``padded_labels`` are those of tokens that the mask hides, and ``padding_labels`` ask for padding. In ``rows``,
    labels ask for tokens; after those, an end token follows in ``ends_follow``, and ``ends_asked`` labels ask for one.
    """

    shift: int
    exchanges: list[TokenExchange]
    labels: int
    padded_labels: int
    padding_labels: int
    rows: int
    ends_follow: int
    ends_asked: int
    loss_line: str
    model_line: str
    failed: str


class CausalProbe(Probe):
    """Exchanges tokens in the first training forwards."""

    def __init__(self, torch: ModuleType, script: ProvedScript) -> None:
        super().__init__(torch, script)
        self.exchanges: dict[str, TokenExchange] = {}
        self.shift, self.labels, self.padded_labels, self.tries = -1, 0, 0, 0
        self.padding_labels = 0
        self.ends = Ends()
        self.loss_line = self.model_line = self.failed = ""
        self._config: Any = None  # of the model, if it is one of transformers
        self._ids: Any = None
        self._mask: Any = None
        self._logits: Any = None  # of the loss inside of a model
        self._watches_loss, self._sharded = True, False
        replace(torch.nn.functional, "cross_entropy", self._losing)

    def _losing(self, loss: Callable[..., Any]) -> Callable[..., Any]:
        def losing(input: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
            if self._ids is not None and not target.is_floating_point():
                if self._watches_loss and self.torch.is_grad_enabled():
                    self._read_labels(target, kwargs.get("ignore_index", IGNORED))
                self._logits = input
            return loss(input, target, *args, **kwargs)

        return losing

    def _read_labels(self, target: Any, ignored: int, by_model: int = 0) -> None:
        """By how much the labels are shifted from the tokens, and whether some are of padding. Those that a model of
        transformers gets, it shifts itself.
        """
        ids, mask = self._ids, self._mask
        if target.numel() % len(ids):
            return
        labels = target.detach().reshape(len(ids), -1)
        valid = labels != ignored
        padding = edges(self.torch, labels, getattr(self._config, "pad_token_id", None))
        self.padding_labels += 0 if padding is None else int((padding & valid).sum())
        for shift in (1, 0, 2):
            there = min(labels.shape[1], ids.shape[1] - shift)
            same, counts = labels[:, :there] == ids[:, shift : shift + there], valid[:, :there]
            if labels.shape[1] > ids.shape[1] or not counts.any():
                continue
            if float((same & counts).sum() / counts.sum()) < SHARE:
                continue
            self.shift = shift + by_model
            self.loss_line = self.loss_line or self.script.line()
            self.labels += int(counts.sum())
            if mask is not None:
                self.padded_labels += int((counts & ~mask[:, shift : shift + there]).sum())
            asked = self.torch.zeros_like(ids, dtype=self.torch.bool)
            asked[:, shift : shift + there] = counts
            self.ends += ends_of(self.torch, ids, mask, asked, getattr(self._config, "eos_token_id", None))
            return

    def around_forward(self, model: Module, args: Any, kwargs: Any, call: Callable[[], Any]) -> Any:
        """A training forward, and then some of other tokens."""
        if not (model.training and self.torch.is_grad_enabled()) or self.tries >= TRIES:
            return call()
        found = [(name, tensor) for name, tensor in tensors_in([args, kwargs]) if self._may_be_ids(tensor)]
        ids = next((one for name, one in found if name.endswith("input_ids")), found[0][1] if found else None)
        if ids is None:
            return call()
        self.tries += 1
        mask = kwargs.get(MASK)
        self._ids = ids.detach().clone()
        self._mask = mask.bool() if mask is not None and mask.shape == ids.shape else None
        self._config = getattr(inner_model(model), "config", None)
        self.model_line = self.model_line or self.script.line()
        # Before the forward: one between it and its backward would gather shards again.
        self._sharded = bool(shards_of(model))
        with self.watched.away(), self._left_alone(model, self.torch.get_rng_state()):
            try:
                whole = model if self._sharded else inner_model(model)
                self._exchange(whole, args, kwargs, ids, dict(tensors_in([args, kwargs])))
            except Exception as error:  # a model may be called in one way only
                self.failed = f"{type(error).__name__}: {error}"
        result = call()
        labels = kwargs.get("labels")
        if self.shift < 0 and labels is not None and labels.shape == ids.shape:  # its loss may be a kernel of its own
            self._read_labels(labels, IGNORED, 1)
        return result

    def _may_be_ids(self, tensor: Any) -> bool:
        return bool(tensor.dim() == 2) and tensor.dtype == self.torch.int64 and tensor.shape[1] >= FEWEST

    @contextlib.contextmanager
    def _left_alone(self, model: Module, state: Any) -> Iterator[None]:
        """Inside, the model may be called: random numbers and buffers are as before."""
        torch = self.torch
        buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
        self._random, self._watches_loss = state, False
        with torch.random.fork_rng(), torch.no_grad():
            try:
                yield
            finally:
                self._watches_loss = True
                for one, old in buffers:
                    one.copy_(old)

    def _exchange(self, model: Module, args: Any, kwargs: Any, ids: Any, tensors: Mapping[str, Any]) -> None:
        torch = self.torch
        rows, tokens = ids.shape
        at = torch.arange(tokens, device=ids.device).expand(rows, tokens)
        real = self._mask if self._mask is not None else torch.ones_like(ids, dtype=torch.bool)
        asking = real & asking_tokens(torch, ids, tensors)
        first, middle = asking.long().argmax(1), torch.div(asking.sum(1), 2, rounding_mode="floor").clamp(min=1)
        split = (first + middle)[:, None]
        wanted = {"future": ((at >= split) & real, (at < split) & asking)}
        if (documents := documents_of(torch, ids, tensors)) is not None:
            last = documents == documents.max(1, keepdim=True).values
            wanted["neighbours"] = (~last & real, last & real)
        if self._mask is not None and not bool(self._mask.all()):
            wanted["padding"] = (~real, real)
        elif (padded := edges(torch, ids, getattr(self._config, "pad_token_id", None))) is not None:
            wanted["unhidden"] = (padded, ~padded)
        useful = {kind for kind, (exchanged, seen) in wanted.items() if exchanged.any() and seen.any()}
        for kind in self._on_all_ranks(useful - set(self.exchanges)):
            exchanged, seen = wanted[kind]
            call = functools.partial(self._called, model, seen=seen, pooled=kind in PADDING)
            own, moved = call(args, kwargs), None
            if kind in PADDING:  # the tokens stay, by which a model may find the last one
                with embedded_otherwise(torch, ids, exchanged) as embedded:
                    moved = call(args, kwargs)
                moved = moved if embedded else None
            if moved is None:
                low, high = ids.min(), ids.max()
                other = torch.where(exchanged, torch.where(ids == high, low, high), ids)
                moved = call(with_other(args, ids, other), with_other(kwargs, ids, other))
            with rounding_of(torch):
                rounded = call(args, kwargs)
            self._compare(kind, type(inner_model(model)).__name__, own, moved, rounded)

    def _on_all_ranks(self, kinds: set[str]) -> list[str]:
        """Those that all ranks can try: ranks that share a model call it as often."""
        if not self._sharded:
            return [kind for kind in KINDS if kind in kinds]
        found: list[Any] = [None] * self.script.world_size
        self.torch.distributed.all_gather_object(found, sorted(kinds))
        return [kind for kind in KINDS if all(kind in one for one in found)]

    def _compare(
        self, kind: str, model: str, own: dict[str, Any], moved: dict[str, Any], rounded: dict[str, Any]
    ) -> None:
        shares = {name: self._share(own[name], moved[name]) for name in own if name in moved}
        known = {name: ALLOWED * self._share(own[name], rounded[name]) for name in shares}
        if not shares:
            return
        last = list(shares)[-1]  # what the model gives
        begins = next((name for name in shares if shares[name] > max(known[name], 1e-12)), "")
        broken = shares[last] > known[last]
        self.exchanges[kind] = TokenExchange(
            kind=kind, moved=shares[last], allowed=known[last], module=(begins or model) if broken else ""
        )

    def _share(self, one: Any, other: Any) -> float:
        mine, its = one.tolist(), other.tolist()
        return distance(mine, its) / (size(mine) or 1.0)

    def _called(self, model: Module, args: Any, kwargs: Any, seen: Any, pooled: bool) -> dict[str, Any]:
        """What each module gives for the tokens that are ``seen``, as sums, and last what the model gives: for these
        tokens, or ``pooled`` for a row.
        """
        found: dict[str, Any] = {}

        def leave(name: str) -> Callable[..., None]:
            def note(module: Module, args: Any, output: Any) -> None:
                if (values := by_token(output, seen)) is not None:
                    found[name] = row_sketch(values, seen)

            return note

        inner = inner_model(model).named_modules()
        handles = [one.register_forward_hook(leave(plain(name))) for name, one in inner if name]
        self.torch.set_rng_state(self._random)
        self._logits = None
        try:
            output = model(*args, **kwargs)
        finally:
            for handle in handles:
                handle.remove()
        values = by_token(output, seen)
        if values is None and self._logits is not None and self._logits.shape[0] == seen.numel():
            values = self._logits.reshape(*seen.shape, -1)
        if values is not None:
            found[""] = row_sketch(values, seen)
        elif pooled and (values := by_row(output, seen)) is not None:
            found[""] = row_sketch(values)
        elif found:  # a loss alone: its last module speaks for it
            found[""] = found[list(found)[-1]]
        return found

    def before_backward(self) -> None:
        """The loss of this forward is known."""
        self._ids = self._mask = self._logits = None

    def facts(self) -> Any:
        """A record, CausalFacts."""
        facts = CausalFacts(
            shift=self.shift,
            exchanges=list(self.exchanges.values()),
            labels=self.labels,
            padded_labels=self.padded_labels,
            padding_labels=self.padding_labels,
            rows=self.ends.rows,
            ends_follow=self.ends.follow,
            ends_asked=self.ends.asked,
            loss_line=self.loss_line,
            model_line=self.model_line,
            failed=self.failed,
        )
        return msgspec.to_builtins(facts)
