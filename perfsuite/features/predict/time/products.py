"""The products of one layer: their shapes, their seconds, and what quantising their operands costs."""

from dataclasses import replace

from perfsuite.features.predict.time import adapters, costs
from perfsuite.features.predict.time.costs import Product
from perfsuite.features.predict.time.precision import PRECISIONS
from perfsuite.features.predict.time.setup import Setup
from perfsuite.features.predict.time.shape import LayerStack
from perfsuite.features.predict.time.work import Rates

# Seconds of one expert's product at least, if each is a kernel of its own: Transformer Engine's grouped linear takes 9
# to 13 µs for each of 80 to 160 experts on a B200, however small (MooreThreads/SimuMax at 4dcaae513b). What CUDA graphs
# launch whole has one kernel for all.
APART = 10e-6


def half(m: int, n: int, k: int, rates: Rates) -> float:
    """Seconds of one product in half precision."""
    return costs.matmul(Product(m, n, k), rates.matmul, rates.memory, rates.multiprocessors)


def products(stack: LayerStack, setup: Setup, rates: Rates, tokens: int, width: int) -> tuple[float, float]:
    """Seconds of a layer's products, forward and backward: one more each for the gradients of input and weight.

    Operands are quantised before: inputs in forward, gradients of outputs in backward.
    """
    precision, fused = PRECISIONS[setup.precision], setup.graphs == "all"
    rate = {"half": rates.matmul, "fp8": rates.fp8, "fp4": rates.fp4}[precision.rate]
    forward = backward = 0.0
    mixing = _attention(stack, setup, tokens, width)
    whole = [*mixing, *_feed_forward(stack, setup, tokens, width)]
    adapted = {"all": len(whole), "attention": len(mixing), "qkv": len(mixing) - 1}[setup.adapted]
    if stack.others:
        whole.append(Product(tokens, max(1, stack.others // (stack.hidden * width)), stack.hidden))
    device = rate, rates.memory, rates.multiprocessors

    def seconds(product: Product) -> float:
        if product.groups == 1 or fused:
            return costs.matmul(product, *device, precision.element)
        alone = Product(product.m, product.n, product.k)
        return product.groups * max(APART, costs.matmul(alone, *device, precision.element))

    cast = precision.apart if setup.eager else precision.cast - (precision.columns if setup.adapter else 0.0)
    for number, one in enumerate(whole):
        forward += seconds(one) + cast * one.groups * one.m * one.k / rates.memory
        gradients = Product(one.m, one.k, one.n, one.groups), Product(one.k, one.n, one.m, one.groups)
        backward += seconds(gradients[0]) + cast * one.groups * one.m * one.n / rates.memory
        if not setup.adapter:
            backward += seconds(gradients[1])
            continue
        again = adapters.dequantised_bytes(one, setup.base) / rates.memory
        forward, backward = forward + again, backward + again
        if one.groups == 1 and number < adapted:
            narrow = sum(half(small.m, small.n, small.k, rates) for small in adapters.beside(one, setup.adapter))
            forward += narrow + adapters.SUM * one.m * one.n / rates.memory
            backward += 2 * narrow + adapters.SUM * one.m * one.k / rates.memory
    return forward, backward


def feed_forward(stack: LayerStack, setup: Setup, rates: Rates, tokens: int, width: int) -> float:
    """Forward seconds of the products of the feed-forward or of the experts alone."""
    alone = replace(stack, heads=0, latent=None, others=0, source_hidden=0)
    return products(alone, setup, rates, tokens, width)[0]


def _attention(stack: LayerStack, setup: Setup, tokens: int, width: int) -> list[Product]:
    """Those before and after the core of attention, to itself and to another stack."""
    if not stack.heads:
        return []
    if stack.latent:
        one, heads = stack.latent, max(1, stack.heads // width)
        wide = heads * (one.plain + one.rotary)
        found = [Product(tokens, one.pair + one.rotary, stack.hidden)]
        found += [Product(tokens, one.query, stack.hidden)] if one.query else []
        found += [Product(tokens, wide, one.query or stack.hidden)]
        found += [Product(tokens, heads * (one.plain + one.value), one.pair)]
        return [*found, Product(tokens, stack.hidden, heads * one.value)]
    rows = stack.head_width * stack.heads // width
    pairs = 2 * stack.head_width * max(1, stack.kv_heads // width)
    apart = bool(setup.eager) and stack.gated
    inputs = [rows, pairs // 2, pairs // 2] if apart else [rows + pairs]
    found = [Product(tokens, columns, stack.hidden) for columns in inputs]
    found.append(Product(tokens, stack.hidden, rows))
    if stack.source_hidden:
        source = setup.micro_batch * setup.sequence
        found += [Product(tokens, rows, stack.hidden), Product(source, pairs, stack.source_hidden)]
        found.append(Product(tokens, stack.hidden, rows))
    return found


def _feed_forward(stack: LayerStack, setup: Setup, tokens: int, width: int) -> list[Product]:
    """Those of the feed-forward, or of router, shared expert and the rank's own experts."""
    inner, experts = stack.feed_forward // width, stack.experts
    gates = 2 if stack.gated else 1
    if not experts and not inner:
        return []
    if not experts:
        apart = bool(setup.eager) and stack.gated
        inputs = [inner, inner] if apart else [inner * gates]
        return [*(Product(tokens, columns, stack.hidden) for columns in inputs), Product(tokens, stack.hidden, inner)]
    found = [Product(expert_tokens(tokens, width), experts.count, stack.hidden)]
    if experts.shared:
        inner = experts.shared // width
        found += [Product(tokens, inner * gates, stack.hidden), Product(tokens, stack.hidden, inner)]
    own, inner = max(1, experts.count // setup.experts), experts.width // setup.expert_tensor
    rows = max(1, round(expert_rows(stack, setup, tokens, width) / own))
    wide = stack.expert_hidden
    return [*found, Product(rows, inner * gates, wide, own), Product(rows, wide, inner, own)]


def expert_tokens(tokens: int, width: int) -> int:
    """The tokens that one rank routes: tensor-parallel ranks have a part each of a sequence."""
    return max(1, tokens // width)


def expert_rows(stack: LayerStack, setup: Setup, tokens: int, width: int) -> float:
    """The rows that a rank's experts get, on the fullest rank."""
    assert stack.experts is not None
    return expert_tokens(tokens, width) * stack.experts.chosen * setup.expert_tensor * setup.imbalance
