"""The dimensions of a transformer that decide its time: stacks of layers, a vocabulary, and their FLOPs."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Experts:
    """A feed-forward of ``count`` experts of which each token passes ``chosen``, and a shared one of ``shared`` width.

    ``width`` is an expert's inner width. Routing is balanced: every expert gets equally many tokens. A token's experts
    are on at most so many ``nodes`` (0: any). They read ``hidden`` features, to which it is projected before (0: all).
    ``biased``: each adds biases of its own.
    """

    count: int
    chosen: int
    width: int
    shared: int = 0
    nodes: int = 0
    hidden: int = 0
    biased: bool = False


@dataclass(frozen=True, kw_only=True)
class Latent:
    """Multi-head latent attention (arXiv 2405.04434, section 2.1): ranks of the compressed queries (0: not compressed)
    and of keys and values, and a head's widths without position, with position, and of its value.
    """

    query: int
    pair: int
    plain: int
    rotary: int
    value: int


@dataclass(frozen=True, kw_only=True)
class LayerStack:
    """``layers`` equal layers. ``source_hidden`` > 0: each also attends to another stack's output of that width.

    ``target``: it reads the target sequence (a decoder behind an encoder). ``gated``: the feed-forward has a third
    matrix. ``causal``: a token attends to those before it only, and in a share of the layers, ``windowed``, to a
    ``window`` of them. ``normed``: queries and keys have norms of their own. ``others`` are elements of more matrices
    that every token passes, such as those of a recurrence, whose ``state`` has so many elements for each sample.
    Without ``heads`` there is no attention.
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
    experts: Experts | None = None
    latent: Latent | None = None
    window: int = 0
    windowed: float = 0.5
    normed: bool = False
    others: int = 0
    state: int = 0

    @property
    def score_width(self) -> float:
        """The mean of a head's width in the scores and in the values: latent attention has two."""
        if self.latent:
            return (self.latent.plain + self.latent.rotary + self.latent.value) / 2
        return self.head_width

    def seen(self, keys: int) -> float:
        """Of ``keys`` tokens those that attention reads, as the mean over layers with and without a window."""
        if not self.window:
            return keys
        return (1 - self.windowed) * keys + self.windowed * min(keys, 2 * self.window)

    @property
    def attention_parameters(self) -> int:
        """Of the self-attention of one layer: queries, keys, values and the projection."""
        if self.latent:
            one, wide = self.latent, self.heads * (self.latent.plain + self.latent.rotary)
            queries = (self.hidden + wide) * one.query if one.query else self.hidden * wide
            pairs = self.hidden * (one.pair + one.rotary) + one.pair * self.heads * (one.plain + one.value)
            return queries + pairs + self.heads * one.value * self.hidden
        return 2 * self.hidden * self.head_width * (self.heads + self.kv_heads)

    @property
    def cross_parameters(self) -> int:
        """Of one layer's attention to the other stack."""
        return self.attention_parameters if self.source_hidden else 0

    @property
    def expert_parameters(self) -> int:
        """Of all routed experts of one layer."""
        if not self.experts:
            return 0
        return (3 if self.gated else 2) * self.expert_hidden * self.experts.width * self.experts.count

    @property
    def expert_hidden(self) -> int:
        """The features that experts read."""
        return (self.experts and self.experts.hidden) or self.hidden

    @property
    def blocks(self) -> int:
        """Parts of a layer that each read the hidden state and add to it: what mixes tokens, and the feed-forward."""
        mixers = bool(self.heads or self.state) + bool(self.source_hidden)
        return max(1, mixers + bool(self.feed_forward or self.experts))

    @property
    def dense_parameters(self) -> int:
        """The matrices of one layer that every token passes."""
        inner = self.feed_forward
        router = 0
        if self.experts:
            inner, router = self.experts.shared, self.hidden * self.experts.count
        forward = (3 if self.gated else 2) * self.hidden * inner
        return self.attention_parameters + self.cross_parameters + forward + router + self.others

    @property
    def scan_flops(self) -> int:
        """FLOPs of a recurrence for one token, forward: each element decays, gets an outer product, and is read.

        arXiv 2405.21060, equation 1. Kernels that compute whole chunks at once do more.
        """
        return 6 * self.state

    @property
    def layer_parameters(self) -> int:
        """The matrices of one layer."""
        return self.dense_parameters + self.expert_parameters

    @property
    def active_parameters(self) -> float:
        """Those of them that one token passes."""
        share = self.experts.chosen / self.experts.count if self.experts else 0
        return self.dense_parameters + self.expert_parameters * share


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Stacks that run one after the other, and a vocabulary. ``tied``: the head shares the embedding's matrix.

    ``positions`` are learned ones. ``classifies``: the head has a few labels instead of the vocabulary. ``extra``:
    heads that predict later tokens, each with a layer like the last and a product (arXiv 2412.19437, section 2.2).
    ``beside`` are parameters that no product has: norms and biases, of a model that was built, and what text does not
    pass. Of others they are left out: less than 0.1 % of the parameters.
    """

    stacks: tuple[LayerStack, ...]
    vocabulary: int
    tied: bool = True
    positions: int = 0
    classifies: bool = False
    extra: int = 0
    beside: int = 0

    @property
    def encodes(self) -> bool:
        """Whether a stack attends to another one."""
        return any(stack.source_hidden for stack in self.stacks)

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
        later = self.extra * (self.stacks[-1].layer_parameters + 2 * self.hidden**2)
        return sum(stack.layers * stack.layer_parameters for stack in self.stacks) + embeddings + later + self.beside

    def tokens(self, stack: LayerStack, sequence: int, target: int = 0) -> int:
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
            layers = stack.layers + (self.extra if stack is self.stacks[-1] else 0)
            flops += 6 * layers * ((stack.active_parameters - keys) * own + keys * sequence)
            seen = stack.seen(own) + (sequence if stack.source_hidden else 0)
            flops += 12 * layers * stack.heads * stack.score_width * own * seen
            flops += 3 * layers * stack.scan_flops * own
        if self.classifies:
            return flops
        last = self.tokens(self.stacks[-1], sequence, target)
        later = self.extra * (self.vocabulary + 2 * self.hidden)
        return flops + 6 * self.hidden * (self.vocabulary + later) * last


def gpt_layers(layers: int, hidden: int, heads: int) -> LayerStack:
    """The layers of a GPT, in the notation of papers: the feed-forward is 4·hidden wide."""
    return LayerStack(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_width=hidden // heads,
        feed_forward=4 * hidden,
    )


def llama_layers(layers: int, hidden: int, heads: int, feed_forward: int, kv_heads: int | None = None) -> LayerStack:
    """The layers of a Llama: the feed-forward has a gate. There are as many ``kv_heads`` as heads, or fewer."""
    return LayerStack(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads or heads,
        head_width=hidden // heads,
        feed_forward=feed_forward,
        gated=True,
    )


def decoder(stack: LayerStack, vocabulary: int, *, tied: bool = True, positions: int = 0) -> Shape:
    """A model of one stack."""
    return Shape(stacks=(stack,), vocabulary=vocabulary, tied=tied, positions=positions)
