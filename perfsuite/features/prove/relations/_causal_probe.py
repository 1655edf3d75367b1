"""What a model gives for tokens that must not know others: it is called again with those exchanged."""

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

import msgspec

from perfsuite.features.prove.relations._asked_labels import AskedLabels, Tokens
from perfsuite.features.prove.relations._changes import rounding_of
from perfsuite.features.prove.relations._compared import ALLOWED, UNIT
from perfsuite.features.prove.relations._gathered_labels import CLAMPED, watch_gathers
from perfsuite.features.prove.relations._other_tokens import (
    asking_tokens,
    by_row,
    by_token,
    documents_of,
    embedded_otherwise,
    left_alone,
    token_inputs,
    with_other,
)
from perfsuite.features.prove.relations._rows import MASK
from perfsuite.features.prove.relations._sketches import position_sketches
from perfsuite.features.prove.relations._special_tokens import edges
from perfsuite.rank.memory.whereabouts import inner_model
from perfsuite.rank.norms import shards_of
from perfsuite.rank.script.batch_size import tensors_in
from perfsuite.rank.script.probes import Probe, ProvedScript, plain
from perfsuite.rank.script.watched import replace
from perfsuite.rank.tasks import IGNORED
from perfsuite.rank.torch_types import Module
from perfsuite.records.record import Record

PROBE = f"{__name__}:CausalProbe"
TRIES = 3  # forwards whose tokens are exchanged
PADDING = ("padding", "unhidden")
DECODED = "decoded"  # later tokens of what a decoder is given beside an encoder's tokens
KINDS = ("future", "neighbours", *PADDING, DECODED)


class TokenExchange(Record, frozen=True, kw_only=True):
    """Tokens of one kind were exchanged: by how much a token that must not know them moved at most, as a share of
    the norm of all, how much rounding explains, and where it began.
    """

    kind: str
    moved: float
    allowed: float
    module: str = ""


class CausalFacts(Record, frozen=True, kw_only=True):
    """Of one rank. ``shift`` is that of the loss's labels from the input's tokens, -1 if they are others.
    ``padded_labels`` are those of tokens that the mask hides, ``padding_labels`` ask for padding, and ``given_labels``
    for what the model was given. In ``rows``, labels ask for tokens; after those, an end token follows in
    ``ends_follow``, and ``ends_asked`` labels ask for one. ``decodes``: the tokens are those of a decoder.
    """

    shift: int
    decodes: bool
    exchanges: list[TokenExchange]
    labels: int
    padded_labels: int
    padding_labels: int
    given_labels: int
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
        self.asked, self.tries = AskedLabels(torch, script), 0
        self.model_line = self.failed = ""
        self._config: Any = None  # of the model, if it is one of transformers
        self._ids: Any = None
        self._mask: Any = None
        self._decoded: Any = None  # what a decoder is given beside these
        self._logits: Any = None  # of the loss inside of a model
        self._watches_loss, self._sharded = True, False
        replace(torch.nn.functional, "cross_entropy", self._losing)
        watch_gathers(torch, self._gathered)

    def _losing(self, loss: Callable[..., Any]) -> Callable[..., Any]:
        def losing(input: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
            if self._ids is not None and not target.is_floating_point():
                if self._watches_loss and self.torch.is_grad_enabled():
                    weighed = kwargs.get("reduction") == "none"  # by what the script multiplies it with
                    self._read_labels(target, kwargs.get("ignore_index", IGNORED), weighed=weighed)
                self._logits = input
            return loss(input, target, *args, **kwargs)

        return losing

    def _gathered(self, labels: Any, first: int) -> None:
        if self._ids is not None and self._watches_loss and len(labels) == len(self._ids):
            tokens = Tokens(self._ids[:, first:], None, self._decoded, self._config)
            self.asked.read(tokens, labels, CLAMPED, 0, True)

    def _read_labels(self, target: Any, ignored: int, by_model: int = 0, weighed: bool = False) -> None:
        tokens = Tokens(self._ids, self._mask, self._decoded, self._config)
        self.asked.read(tokens, target, ignored, by_model, weighed)

    def around_forward(self, model: Module, args: Any, kwargs: Any, call: Callable[[], Any]) -> Any:
        """A training forward, and then some of other tokens."""
        if not (model.training and self.torch.is_grad_enabled()) or self.tries >= TRIES:
            return call()
        ids, decoded = token_inputs(self.torch, tensors_in([args, kwargs]))
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
        state, kind = self.torch.get_rng_state(), ids.device.type
        # In float32, no rounding hides a token that is seen. Some kernels have no float32.
        exact = [self.torch.autocast(kind, enabled=False)] if self.torch.is_autocast_enabled(kind) else []
        for precision in (*exact, contextlib.nullcontext()):
            with self.watched.away(), self._left_alone(model, state), precision:
                try:
                    whole = model if self._sharded else inner_model(model)
                    self._exchange(whole, args, kwargs, ids, dict(tensors_in([args, kwargs])))
                    self._exchange_decoded(whole, args, kwargs, decoded)
                    self.failed = ""
                    break
                except Exception as error:  # a model may be called in one way only
                    self.failed = f"{type(error).__name__}: {error}"
        result = call()
        labels = kwargs.get("labels")
        # Its loss may be a kernel of its own.
        if self.asked.shift < 0 and labels is not None and labels.shape == ids.shape:
            self._read_labels(labels, IGNORED, 1)
        return result

    @contextlib.contextmanager
    def _left_alone(self, model: Module, state: Any) -> Iterator[None]:
        """Inside, the model may be called with these random numbers, and its loss says nothing."""
        self._random, self._watches_loss = state, False
        with left_alone(self.torch, model):
            try:
                yield
            finally:
                self._watches_loss = True

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
            wanted["neighbours"] = ((documents >= 0) & ~last & real, last & real)
        if self._mask is not None and not bool(self._mask.all()):
            wanted["padding"] = (~real, real)
        padded = edges(torch, ids, getattr(self._config, "pad_token_id", None))
        if padded is not None and bool((padded & real).any()):
            wanted["unhidden"] = (padded & real, ~padded)
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

    def _exchange_decoded(self, model: Module, args: Any, kwargs: Any, ids: Any) -> None:
        """Later tokens of a decoder's, if it reads them: targets may be given for the loss alone."""
        if ids is None or self._sharded:
            return
        if DECODED in self.exchanges:
            self._decoded = ids.detach().clone()
            return
        torch, tokens = self.torch, ids.shape[1]
        later = (torch.arange(tokens, device=ids.device) >= tokens // 2).expand(ids.shape)
        other = torch.where(later, torch.where(ids == ids.max(), ids.min(), ids.max()), ids)
        inputs = ((args, kwargs), (with_other(args, ids, other), with_other(kwargs, ids, other)))
        own, moved = (self._called(model, *one, seen=later, pooled=False) for one in inputs)
        if not own or self._share(own[""], moved[""]) <= ALLOWED * UNIT:
            return
        self._decoded = ids.detach().clone()
        own, moved = (self._called(model, *one, seen=~later, pooled=False) for one in inputs)
        with rounding_of(torch):
            rounded = self._called(model, args, kwargs, seen=~later, pooled=False)
        self._compare(DECODED, type(inner_model(model)).__name__, own, moved, rounded)

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
        """By how much the token that differs most does, as a share of the norm that tokens have."""
        norm = one.norm(dim=1).square().mean().sqrt().item()
        share = (one - other).norm(dim=1).max().item() / (norm or 1.0)
        return math.inf if math.isnan(share) else share

    def _called(self, model: Module, args: Any, kwargs: Any, seen: Any, pooled: bool) -> dict[str, Any]:
        """What each module gives for each token that is ``seen``, and last what the model gives: for these tokens, or
        ``pooled`` for each row.
        """
        found: dict[str, Any] = {}

        def leave(name: str) -> Callable[..., None]:
            def note(module: Module, args: Any, output: Any) -> None:
                if (values := by_token(output, seen)) is not None:
                    found[name] = position_sketches(values, seen)

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
            found[""] = position_sketches(values, seen)
        elif pooled and (values := by_row(output, seen)) is not None:
            found[""] = position_sketches(values, self.torch.ones_like(seen[:, 0], dtype=self.torch.bool))
        elif found:  # a loss alone: its last module speaks for it
            found[""] = found[list(found)[-1]]
        return found

    def before_backward(self) -> None:
        """The loss of this forward is known."""
        self._ids = self._mask = self._decoded = self._logits = None

    def facts(self) -> Any:
        """A record, CausalFacts."""
        asked = self.asked
        facts = CausalFacts(
            shift=asked.shift,
            decodes=asked.decodes,
            exchanges=list(self.exchanges.values()),
            labels=asked.labels,
            padded_labels=asked.padded_labels,
            padding_labels=asked.padding_labels,
            given_labels=asked.given_labels,
            rows=asked.ends.rows,
            ends_follow=asked.ends.follow,
            ends_asked=asked.ends.asked,
            loss_line=asked.loss_line,
            model_line=self.model_line,
            failed=self.failed,
        )
        return msgspec.to_builtins(facts)
