"""The dimensions of a transformer that decide its time: stacks of layers, a vocabulary, and their FLOPs."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from perfsuite.catalog.definitions import Model
from perfsuite.errors import Refused


@dataclass(frozen=True, kw_only=True)
class Stack:
    """``layers`` equal layers. ``source_hidden`` > 0: each also attends to another stack's output of that width.

    ``target``: it reads the target sequence (a decoder behind an encoder). ``gated``: the feed-forward has a third
    matrix. ``causal``: a token attends to those before it only.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_width: int
    feed_forward: int
    gated: bool = False
    causal: bool = True
    source_hidden: int = 0
    target: bool = False

    @property
    def attention_parameters(self) -> int:
        """Of the self-attention of one layer: queries, keys, values and the projection."""
        return 2 * self.hidden * self.head_width * (self.heads + self.kv_heads)

    @property
    def cross_parameters(self) -> int:
        """Of one layer's attention to the other stack."""
        return self.attention_parameters if self.source_hidden else 0

    @property
    def layer_parameters(self) -> int:
        """The matrices of one layer."""
        forward = (3 if self.gated else 2) * self.hidden * self.feed_forward
        return self.attention_parameters + self.cross_parameters + forward


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Stacks that run one after the other, and a vocabulary. ``tied``: the head shares the embedding's matrix.

    ``positions`` are learned ones. ``classifies``: the head has a few labels instead of the vocabulary. Norms and
    biases are left out: less than 0.1 % of the parameters.
    """

    stacks: tuple[Stack, ...]
    vocabulary: int
    tied: bool = True
    positions: int = 0
    classifies: bool = False

    @property
    def hidden(self) -> int:
        """The width of the hidden state."""
        return self.stacks[-1].hidden

    @property
    def layers(self) -> int:
        """All layers."""
        return sum(stack.layers for stack in self.stacks)

    @property
    def parameters(self) -> int:
        """All matrices and embeddings; tied ones count once."""
        embeddings = self.hidden * (self.vocabulary * (1 if self.tied else 2) + self.positions)
        return sum(stack.layers * stack.layer_parameters for stack in self.stacks) + embeddings

    def tokens(self, stack: Stack, sequence: int, target: int = 0) -> int:
        """The length of the sequence that a stack reads."""
        return target if stack.target else sequence

    def model_flops(self, sequence: int, target: int = 0) -> float:
        """FLOPs of forward and backward for one sample: 6 per matrix element and token, full (not halved) attention.

        For a decoder this is 72BLsh²(1+s/6h+V/12hL) of arXiv 2205.05198, appendix A. For an encoder and a decoder it
        is 6·[P_enc·S + (P_dec − P_xkv)·T + P_xkv·S + d·V·T] + 12·L·H·d_kv·(S² + T² + S·T).
        """
        flops = 0.0
        for stack in self.stacks:
            own = self.tokens(stack, sequence, target)
            keys = stack.hidden * 2 * stack.kv_heads * stack.head_width if stack.source_hidden else 0
            flops += 6 * stack.layers * ((stack.layer_parameters - keys) * own + keys * sequence)
            seen = own + (sequence if stack.source_hidden else 0)
            flops += 12 * stack.layers * stack.heads * stack.head_width * own * seen
        if self.classifies:
            return flops
        last = self.tokens(self.stacks[-1], sequence, target)
        return flops + 6 * self.hidden * self.vocabulary * last


def decoder(  # noqa: PLR0913  the notation of papers
    layers: int,
    hidden: int,
    heads: int,
    vocabulary: int,
    feed_forward: int | None = None,
    *,
    kv_heads: int | None = None,
    gated: bool = False,
    tied: bool = True,
    positions: int = 0,
) -> Shape:
    """A decoder in the notation of papers; the feed-forward is 4·hidden wide unless it is given."""
    stack = Stack(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads or heads,
        head_width=hidden // heads,
        feed_forward=feed_forward or 4 * hidden,
        gated=gated,
    )
    return Shape(stacks=(stack,), vocabulary=vocabulary, tied=tied, positions=positions)


def shape_of(model: Model) -> Shape:
    """The shape of a catalog's model. Raises Refused if its config does not say it."""
    config = model.config
    try:
        if "d_kv" in config:
            return _t5(config)
        hidden = _first(config, "hidden_size", "n_embd")
        heads = _first(config, "num_attention_heads", "n_head")
        shape = decoder(
            _first(config, "num_hidden_layers", "n_layer"),
            hidden,
            heads,
            _first(config, "vocab_size"),
            config.get("intermediate_size") or config.get("n_inner"),
            kv_heads=config.get("num_key_value_heads"),
            gated="intermediate_size" in config and "num_key_value_heads" in config,
            tied=config.get("tie_word_embeddings", True),
            positions=config.get("n_positions", 0),
        )
        return replace(shape, classifies=model.task == "sequence_classification")
    except KeyError as missing:
        raise Refused(f"{model.name} has no closed form of its time: its config has no {missing.args[0]}.") from None


def _t5(config: Mapping[str, Any]) -> Shape:
    """An encoder and a decoder of as many layers; every head has the width ``d_kv``."""
    stacks = tuple(
        Stack(
            layers=config["num_layers"],
            hidden=config["d_model"],
            heads=config["num_heads"],
            kv_heads=config["num_heads"],
            head_width=config["d_kv"],
            feed_forward=config["d_ff"],
            gated="gated" in config.get("feed_forward_proj", "relu"),
            causal=target,
            source_hidden=config["d_model"] if target else 0,
            target=target,
        )
        for target in (False, True)
    )
    return Shape(stacks=stacks, vocabulary=config["vocab_size"], tied=config.get("tie_word_embeddings", True))


def _first(config: Mapping[str, Any], *names: str) -> int:
    """The first of the names that the config has."""
    for name in names:
        if name in config:
            return int(config[name])
    raise KeyError(" or ".join(names))
