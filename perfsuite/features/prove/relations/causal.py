"""causal: a model that is asked for the next token sees no later one. Packed neighbours do not see each other, and what
an attention mask hides changes nothing.

The probe calls the model again with other tokens, without gradients and with the same random numbers, and compares what
it gives for the tokens that must not know.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

import msgspec

from perfsuite.features.prove.relation import CannotTry, Judged, Relation, Remark, Seen, by_own_run, typed
from perfsuite.features.prove.relations._changes import rounding_of
from perfsuite.features.prove.relations._compared import ALLOWED
from perfsuite.features.prove.relations._sketches import distance, row_sketch, size
from perfsuite.rank.memory.whereabouts import inner_model
from perfsuite.rank.norms import shards_of
from perfsuite.rank.script.batch_size import tensors_in
from perfsuite.rank.script.probes import Probe, ProvedScript, plain
from perfsuite.rank.script.watched import replace
from perfsuite.rank.torch_types import Module
from perfsuite.records.record import Record

TRIES = 3  # forwards whose tokens are exchanged
FEWEST = 4  # tokens of a row
MASK = "attention_mask"
IGNORED = -100  # what is no label, in torch
SHARE = 0.9  # of the labels that must be the input's tokens
KINDS = ("future", "neighbours", "padding")


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
    ``padded_labels`` are those of tokens that the mask hides.
    """

    shift: int
    exchanges: list[TokenExchange]
    labels: int
    padded_labels: int
    loss_line: str
    model_line: str
    failed: str


class CausalProbe(Probe):
    """Exchanges tokens in the first training forwards."""

    def __init__(self, torch: ModuleType, script: ProvedScript) -> None:
        super().__init__(torch, script)
        self.exchanges: dict[str, TokenExchange] = {}
        self.shift, self.labels, self.padded_labels, self.tries = -1, 0, 0, 0
        self.loss_line = self.model_line = self.failed = ""
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
        asking = real & _asking(torch, ids, tensors)
        first, middle = asking.long().argmax(1), torch.div(asking.sum(1), 2, rounding_mode="floor").clamp(min=1)
        split = (first + middle)[:, None]
        wanted = {"future": ((at >= split) & real, (at < split) & asking)}
        if (documents := _documents(torch, ids, tensors)) is not None:
            last = documents == documents.max(1, keepdim=True).values
            wanted["neighbours"] = (~last & real, last & real)
        if self._mask is not None and not bool(self._mask.all()):
            wanted["padding"] = (~real, real)
        useful = {kind for kind, (exchanged, seen) in wanted.items() if exchanged.any() and seen.any()}
        for kind in self._on_all_ranks(useful - set(self.exchanges)):
            exchanged, seen = wanted[kind]
            call = functools.partial(self._called, model, seen=seen, pooled=kind == "padding")
            own, moved = call(args, kwargs), None
            if kind == "padding":  # the tokens stay, by which a model may find the last one
                with _embedded_otherwise(torch, ids, exchanged) as embedded:
                    moved = call(args, kwargs)
                moved = moved if embedded else None
            if moved is None:
                low, high = ids.min(), ids.max()
                other = torch.where(exchanged, torch.where(ids == high, low, high), ids)
                moved = call(_with(args, ids, other), _with(kwargs, ids, other))
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
                if (values := _by_token(output, seen)) is not None:
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
        values = _by_token(output, seen)
        if values is None and self._logits is not None and self._logits.shape[0] == seen.numel():
            values = self._logits.reshape(*seen.shape, -1)
        if values is not None:
            found[""] = row_sketch(values, seen)
        elif pooled and (values := _by_row(output, seen)) is not None:
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
            loss_line=self.loss_line,
            model_line=self.model_line,
            failed=self.failed,
        )
        return msgspec.to_builtins(facts)


def _by_token(output: Any, seen: Any) -> Any:
    """The first tensor of an output that has features for each token."""
    values = output if not hasattr(output, "__dict__") or hasattr(output, "shape") else vars(output)
    tensors = (tensor for _, tensor in tensors_in(values) if tensor.is_floating_point() and tensor.dim() > 2)
    return next((tensor for tensor in tensors if tensor.shape[:2] == seen.shape), None)


def _by_row(output: Any, seen: Any) -> Any:
    """The first tensor of an output that has numbers for each row, and not for each token."""
    values = output if not hasattr(output, "__dict__") or hasattr(output, "shape") else vars(output)
    rows, tokens = seen.shape
    for _, tensor in tensors_in(values):
        if tensor.is_floating_point() and tensor.dim() and len(tensor) == rows and tokens not in tensor.shape[1:]:
            return tensor
    return None


@contextlib.contextmanager
def _embedded_otherwise(torch: Any, ids: Any, exchanged: Any) -> Iterator[list[Module]]:
    """Inside, tokens that are ``exchanged`` have other embeddings. The modules that embed are put into the list."""
    embedded: list[Module] = []

    def leave(module: Module, args: Any, kwargs: Any, output: Any) -> Any:
        given = next((tensor for _, tensor in tensors_in([args, kwargs])), None)
        if given is None or given.dtype != ids.dtype or next(module.children(), None) is not None:
            return None
        embeds = given.shape == ids.shape == getattr(output, "shape", ())[:2] and output.is_floating_point()
        if not embeds or not torch.equal(given, ids):
            return None
        embedded.append(module)
        return torch.where(exchanged[..., None], output.roll(1, -1) + output.abs().mean(), output)

    handle = torch.nn.modules.module.register_module_forward_hook(leave, with_kwargs=True)
    try:
        yield embedded
    finally:
        handle.remove()


def _with(value: Any, old: Any, new: Any) -> Any:
    """A structure of inputs with another tensor in the place of one."""
    if isinstance(value, Mapping):
        return {key: _with(item, old, new) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(_with(item, old, new) for item in value)
    return new if value is old else value


def _asking(torch: Any, ids: Any, tensors: Mapping[str, Any]) -> Any:
    """Which tokens ask for the next one. Those of a prompt may not, and may see all of it."""
    found = (one for name, one in tensors.items() if name.endswith("labels") and one.shape == ids.shape)
    labels = next(found, None)
    if labels is None:
        return torch.ones_like(ids, dtype=torch.bool)
    return torch.nn.functional.pad(labels[:, 1:] != IGNORED, (0, 1))


def _documents(torch: Any, ids: Any, tensors: Mapping[str, Any]) -> Any:
    """The number of each token's document in its row, if the model is told where documents begin: by positions that
    begin again, by numbers of documents, or by where sequences begin (``cu_seqlens``). None if there is one alone.
    """
    for name, tensor in tensors.items():
        if tensor is ids or tensor.is_floating_point():
            continue
        found = None
        if tensor.shape == ids.shape and "position" in name:
            found = (tensor[:, 1:] != tensor[:, :-1] + 1).cumsum(1)
            found = torch.nn.functional.pad(found, (1, 0))
        elif tensor.shape == ids.shape and ("seq" in name or "doc" in name or "segment" in name):
            found = tensor
        elif (
            tensor.dim() == 1 and len(ids) == 1 and tensor.numel() > 2 and tensor[0] == 0 and tensor[-1] == ids.shape[1]
        ):
            found = torch.bucketize(torch.arange(ids.shape[1], device=ids.device), tensor.long(), right=True)[None]
        if found is not None and bool((found.max(1).values > found.min(1).values).any()):
            return found
    return None


def _judge(seen: Seen) -> Judged:
    facts = typed(seen, CausalFacts)
    first = next((rank for rank in facts if rank.shift >= 0), facts[0])
    sees_all = any(one.kind == "future" and one.moved > one.allowed for one in first.exchanges)
    wrong = [
        Remark(
            what=exchange.kind,
            subject=exchange.module,
            number=exchange.moved,
            expected=exchange.allowed,
            line=first.model_line,
        )
        for exchange in first.exchanges
        if exchange.moved > exchange.allowed
    ]
    if first.shift < 0 or (not first.shift and sees_all):  # an autoencoder is asked for what it was given
        if padding := [one for one in wrong if one.what == "padding"]:
            return RELATION.broken(padding)
        raise CannotTry(Remark(what="other"))
    if first.shift != 1:
        return RELATION.broken([Remark(what="unshifted" if not first.shift else "twice", line=first.loss_line)])
    if not first.exchanges:
        raise CannotTry(Remark(what="uncalled" if first.failed else "short", subject=first.failed))
    if first.padded_labels:
        numbers = {"number": float(first.padded_labels), "expected": float(first.labels)}
        wrong.append(Remark(what="padded", line=first.loss_line, **numbers))  # type: ignore[arg-type]
    tried = {exchange.kind for exchange in first.exchanges}
    aside = [Remark(what=f"no_{kind}") for kind in KINDS[1:] if kind not in tried]
    return RELATION.broken(wrong, aside, Remark(what="held"))


RELATION = Relation(
    name="causal",
    order=60,
    asks="A model that is asked for the next token sees no later one, no packed neighbour and no padding.",
    probe=f"{__name__}:CausalProbe",
    says={
        "held": "later tokens change nothing of what the model gives for earlier ones",
        "other": "no loss was seen that asks for the next token of the model's input",
        "short": "rows have fewer than 4 tokens: let the script train on longer ones",
        "uncalled": "the model cannot be called a second time: {subject}",
        "unshifted": "the loss asks for a token that the model was just given: are the labels shifted by one, to the "
        "left?",
        "twice": "the loss asks for the token after the next: the labels are shifted by two. A model of transformers "
        "shifts them itself",
        "future": "later tokens change what the model gives for earlier ones, by {number} of its norm (rounding "
        "explains {expected}). It begins in {subject}: is its attention masked?",
        "neighbours": "a document changes what the model gives for its neighbour in the same row, by {number} of its "
        "norm (rounding explains {expected}). It begins in {subject}",
        "padding": "tokens that attention_mask hides change what the model gives for others, by {number} of its norm "
        "(rounding explains {expected}). It begins in {subject}",
        "padded": "{number} of {expected} labels are of tokens that attention_mask hides: set them to -100",
        "no_neighbours": "whether packed neighbours see each other was not tried: no input of the model says "
        "where documents begin",
        "no_padding": "whether padding changes anything was not tried: no attention_mask hides a token",
    },
    prove=by_own_run(_judge),
)
