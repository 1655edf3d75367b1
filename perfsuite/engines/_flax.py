"""GPT-2 and T5 in flax.nnx, with the sizes of transformers' configurations and the names of its parameters.

So the weights of a torch model can be taken over one by one, and both frameworks train the same numbers. There is no
dropout: the two draw other random numbers. Imported in ranks only, since it imports jax.
"""

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

IGNORED = -100  # the label of a position that counts for nothing (transformers)
LEAST = -3.4028234663852886e38  # of float32
BUCKETS, FARTHEST = 32, 128  # T5Config's relative_attention_num_buckets and relative_attention_max_distance


def attend(query: Any, key: Any, value: Any, bias: Any, scale: float) -> Any:
    """Attention of [batch, length, heads, width]; ``bias`` is added to the scores."""
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, key).astype(jnp.float32) * scale + bias
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, axis=-1).astype(value.dtype), value)


def masked(mask: Any, causal: bool) -> Any:
    """The bias of a mask [batch, keys]: nothing where a query may look, and the least number elsewhere."""
    seen = mask[:, None, None, :].astype(bool)
    if causal:
        length = mask.shape[1]
        seen = seen & jnp.tril(jnp.ones((length, length), bool))
    return jnp.where(seen, 0.0, LEAST)


def mean_loss(logits: Any, labels: Any) -> Any:
    """The mean cross entropy of the labels that count, over the batches of all ranks."""
    counts = labels != IGNORED
    chances = jax.nn.log_softmax(logits.astype(jnp.float32), axis=-1)
    chosen = jnp.take_along_axis(chances, jnp.where(counts, labels, 0)[..., None], axis=-1)[..., 0]
    return -jnp.where(counts, chosen, 0.0).sum() / counts.sum()


class Gpt2Attention(nnx.Module):
    def __init__(self, width: int, heads: int, rngs: nnx.Rngs) -> None:
        self.heads = heads
        self.c_attn = nnx.Linear(width, 3 * width, rngs=rngs)
        self.c_proj = nnx.Linear(width, width, rngs=rngs)

    def __call__(self, hidden: Any, bias: Any) -> Any:
        split = [one.reshape(*one.shape[:2], self.heads, -1) for one in jnp.split(self.c_attn(hidden), 3, axis=-1)]
        query, key, value = split
        return self.c_proj(attend(query, key, value, bias, query.shape[-1] ** -0.5).reshape(hidden.shape))


class Gpt2Mlp(nnx.Module):
    def __init__(self, width: int, rngs: nnx.Rngs) -> None:
        self.c_fc = nnx.Linear(width, 4 * width, rngs=rngs)
        self.c_proj = nnx.Linear(4 * width, width, rngs=rngs)

    def __call__(self, hidden: Any) -> Any:
        return self.c_proj(jax.nn.gelu(self.c_fc(hidden), approximate=True))


class Gpt2Block(nnx.Module):
    def __init__(self, width: int, heads: int, rngs: nnx.Rngs) -> None:
        self.ln_1, self.ln_2 = (nnx.LayerNorm(width, epsilon=1e-5, rngs=rngs) for _ in range(2))
        self.attn, self.mlp = Gpt2Attention(width, heads, rngs), Gpt2Mlp(width, rngs)

    def __call__(self, hidden: Any, bias: Any) -> Any:
        hidden = hidden + self.attn(self.ln_1(hidden), bias)
        return hidden + self.mlp(self.ln_2(hidden))


class Gpt2Body(nnx.Module):
    def __init__(self, config: Mapping[str, Any], rngs: nnx.Rngs) -> None:
        width = config["n_embd"]
        self.wte = nnx.Embed(config["vocab_size"], width, rngs=rngs)
        self.wpe = nnx.Embed(config["n_positions"], width, rngs=rngs)
        self.h = nnx.List(Gpt2Block(width, config["n_head"], rngs) for _ in range(config["n_layer"]))
        self.ln_f = nnx.LayerNorm(width, epsilon=1e-5, rngs=rngs)


class Gpt2(nnx.Module):
    """GPT2LMHeadModel; its head is the embedding."""

    def __init__(self, config: Mapping[str, Any], rngs: nnx.Rngs) -> None:
        self.transformer = Gpt2Body(config, rngs)

    def __call__(self, inputs: Mapping[str, Any]) -> Any:
        body, ids = self.transformer, inputs["input_ids"]
        hidden = body.wte(ids) + body.wpe(jnp.arange(ids.shape[1]))
        bias = masked(inputs["attention_mask"], causal=True)
        for block in body.h:
            hidden = block(hidden, bias)
        return mean_loss(body.wte.attend(body.ln_f(hidden))[:, :-1], inputs["labels"][:, 1:])


class T5Attention(nnx.Module):
    def __init__(self, config: Mapping[str, Any], rngs: nnx.Rngs, biased: bool) -> None:
        width, inner = config["d_model"], config["num_heads"] * config["d_kv"]
        self.heads = config["num_heads"]
        self.q, self.k, self.v = (nnx.Linear(width, inner, use_bias=False, rngs=rngs) for _ in range(3))
        self.o = nnx.Linear(inner, width, use_bias=False, rngs=rngs)
        if biased:
            self.relative_attention_bias = nnx.Embed(BUCKETS, self.heads, rngs=rngs)

    def __call__(self, hidden: Any, memory: Any, bias: Any) -> Any:
        query, key, value = (
            one.reshape(*one.shape[:2], self.heads, -1) for one in (self.q(hidden), self.k(memory), self.v(memory))
        )
        return self.o(attend(query, key, value, bias, 1.0).reshape(*hidden.shape[:2], -1))

    def bias(self, length: int, both_ways: bool) -> Any:
        """Of each relative position, [1, heads, length, length]."""
        return self.relative_attention_bias(buckets(length, both_ways)).transpose(2, 0, 1)[None].astype(jnp.float32)


def buckets(length: int, both_ways: bool) -> Any:
    """The bucket of each pair of positions: exact up to a distance, then in logarithms (arXiv 1910.10683, section 2.1;
    T5Attention._relative_position_bucket of transformers).
    """
    import numpy

    relative = numpy.arange(length)[None, :] - numpy.arange(length)[:, None]
    count, first = BUCKETS, numpy.zeros_like(relative)
    if both_ways:
        count //= 2
        first, distance = (relative > 0) * count, numpy.abs(relative)
    else:
        distance = numpy.maximum(-relative, 0)
    exact = count // 2
    far = numpy.log(numpy.maximum(distance, 1).astype(numpy.float32) / numpy.float32(exact))
    far = exact + (far / numpy.float32(math.log(FARTHEST / exact)) * (count - exact)).astype(numpy.int64)
    return first + numpy.where(distance < exact, distance, numpy.minimum(far, count - 1))


class T5Sublayer(nnx.Module):
    """One of a block's layers, behind its norm. The attention or the feed-forward has transformers' name."""

    def __init__(self, name: str, part: nnx.Module, width: int, rngs: nnx.Rngs) -> None:
        self.name = name
        setattr(self, name, part)
        self.layer_norm = nnx.RMSNorm(width, epsilon=1e-6, rngs=rngs)

    @property
    def part(self) -> Any:
        return getattr(self, self.name)


class T5Feed(nnx.Module):
    def __init__(self, config: Mapping[str, Any], rngs: nnx.Rngs) -> None:
        self.wi = nnx.Linear(config["d_model"], config["d_ff"], use_bias=False, rngs=rngs)
        self.wo = nnx.Linear(config["d_ff"], config["d_model"], use_bias=False, rngs=rngs)

    def __call__(self, hidden: Any) -> Any:
        return self.wo(jax.nn.relu(self.wi(hidden)))


class T5Block(nnx.Module):
    def __init__(self, config: Mapping[str, Any], rngs: nnx.Rngs, biased: bool, decodes: bool) -> None:
        parts: dict[str, nnx.Module] = {"SelfAttention": T5Attention(config, rngs, biased)}
        if decodes:
            parts["EncDecAttention"] = T5Attention(config, rngs, biased=False)
        parts["DenseReluDense"] = T5Feed(config, rngs)
        self.layer = nnx.List(T5Sublayer(name, part, config["d_model"], rngs) for name, part in parts.items())

    def __call__(self, hidden: Any, bias: Any, memory: Any = None, memory_bias: Any = None) -> Any:
        for layer in self.layer:
            normed = layer.layer_norm(hidden)
            if layer.name == "SelfAttention":
                hidden = hidden + layer.part(normed, normed, bias)
            elif layer.name == "EncDecAttention":
                hidden = hidden + layer.part(normed, memory, memory_bias)
            else:
                hidden = hidden + layer.part(normed)
        return hidden


class T5Stack(nnx.Module):
    def __init__(self, config: Mapping[str, Any], rngs: nnx.Rngs, decodes: bool) -> None:
        blocks = range(config["num_layers"])
        self.block = nnx.List(T5Block(config, rngs, number == 0, decodes) for number in blocks)
        self.final_layer_norm = nnx.RMSNorm(config["d_model"], epsilon=1e-6, rngs=rngs)
        self.decodes = decodes

    def __call__(self, hidden: Any, mask: Any, memory: Any = None, memory_bias: Any = None) -> Any:
        relative = self.block[0].layer[0].part.bias(hidden.shape[1], both_ways=not self.decodes)
        bias = masked(mask, causal=self.decodes) + relative
        for block in self.block:
            hidden = block(hidden, bias, memory, memory_bias)
        return self.final_layer_norm(hidden)


class T5(nnx.Module):
    """T5ForConditionalGeneration; its head is the embedding."""

    def __init__(self, config: Mapping[str, Any], rngs: nnx.Rngs) -> None:
        self.shared = nnx.Embed(config["vocab_size"], config["d_model"], rngs=rngs)
        self.encoder, self.decoder = (T5Stack(config, rngs, decodes) for decodes in (False, True))

    def __call__(self, inputs: Mapping[str, Any]) -> Any:
        mask, labels = inputs["attention_mask"], inputs["labels"]
        memory = self.encoder(self.shared(inputs["input_ids"]), mask)
        before = jnp.pad(jnp.where(labels == IGNORED, 0, labels), ((0, 0), (1, 0)))[:, :-1]  # begins with the start: 0
        hidden = self.decoder(self.shared(before), jnp.ones_like(before), memory, masked(mask, causal=False))
        return mean_loss(self.shared.attend(hidden * hidden.shape[-1] ** -0.5), labels)


MODELS = {"gpt2": Gpt2, "t5": T5}  # by the catalog's family
