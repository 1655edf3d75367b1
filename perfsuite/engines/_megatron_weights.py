"""The weights of transformers' GPT-2 in megatron-core's GPT model, and back.

Megatron's matrices have a row per output, GPT-2's a column. Megatron keeps query, key and value of a head together, so
that a tensor-parallel rank has whole heads; GPT-2 keeps all queries together (arXiv 1909.08053, section 3).
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from perfsuite.rank.torch_types import Module, Tensor

LAYER = {
    "input_layernorm": "ln_1",
    "self_attention.linear_qkv": "attn.c_attn",
    "self_attention.linear_proj": "attn.c_proj",
    "pre_mlp_layernorm": "ln_2",
    "mlp.linear_fc1": "mlp.c_fc",
    "mlp.linear_fc2": "mlp.c_proj",
}
OF_TOKENS = {"embedding.word_embeddings": "transformer.wte", "output_layer": "lm_head"}
REST = {
    "embedding.position_embeddings": "transformer.wpe",
    "decoder.final_layernorm": "transformer.ln_f",
}


class Weight(NamedTuple):
    """A parameter of a stage, and the one of the whole model. ``there`` makes Megatron's layout of GPT-2's, ``back``
    the other way round.
    """

    name: str
    parameter: Any
    there: Callable[[Tensor], Tensor]
    back: Callable[[Tensor], Tensor]


def padded(vocabulary: int, ranks: int) -> int:
    """The rows of Megatron's embedding: if tensor-parallel ranks cannot share the vocabulary evenly, it is padded to a
    multiple of 128 per rank, as by Megatron-LM (megatron/training/tokenizer, make-vocab-size-divisible-by).
    """
    if not vocabulary % ranks:
        return vocabulary
    return -(-vocabulary // (128 * ranks)) * 128 * ranks


def weights(stage: Module, first: int, heads: int, vocabulary: int) -> Iterator[Weight]:
    """The parameters of a stage whose first layer has that number in the whole model. Rows that pad the embedding are
    zero at first, and not part of the whole.
    """
    import torch

    rows: int = stage.vocab_size  # type: ignore[assignment]

    def with_padding(weight: Any) -> Any:
        return torch.nn.functional.pad(weight, (0, 0, 0, rows - vocabulary)) if rows > vocabulary else weight

    def without_padding(weight: Any) -> Any:
        return weight[:vocabulary]

    def heads_together(weight: Any) -> Any:
        width = weight.shape[0] // 3 // heads
        return weight.view(3, heads, width, -1).transpose(0, 1).reshape(weight.shape)

    def queries_together(weight: Any) -> Any:
        width = weight.shape[0] // 3 // heads
        return weight.view(heads, 3, width, -1).transpose(0, 1).reshape(weight.shape)

    def transposed(weight: Any) -> Any:
        return weight.t()

    for name, parameter in stage.named_parameters():
        module, _, kind = name.rpartition(".")
        if module in OF_TOKENS:
            yield Weight(f"{OF_TOKENS[module]}.{kind}", parameter, with_padding, without_padding)
            continue
        if module in REST:
            yield Weight(f"{REST[module]}.{kind}", parameter, _same, _same)
            continue
        number, _, module = module.removeprefix("decoder.layers.").partition(".")
        own = f"transformer.h.{first + int(number)}.{LAYER[module]}.{kind}"
        there, back = (transposed, transposed) if parameter.dim() > 1 else (_same, _same)
        if module == "self_attention.linear_qkv":
            there, back = _after(there, heads_together), _after(queries_together, back)
        yield Weight(own, parameter, there, back)


def fill(weight: Weight, whole: Tensor, rank: int) -> int:
    """Copy a tensor-parallel rank's part of the whole weight into the parameter. Returns the whole's elements."""
    import torch

    part, tensor = weight.there(whole.detach()), weight.parameter
    elements = part.numel()
    if is_divided(tensor):
        length = tensor.shape[tensor.partition_dim]
        part = part.narrow(tensor.partition_dim, rank * length, length)
    with torch.no_grad():
        tensor.copy_(part)
    return elements


def gathered(weight: Weight, group: Any, ranks: int) -> Tensor:
    """The whole weight, from the parts of the tensor-parallel ranks. Collective."""
    import torch
    import torch.distributed as dist

    part = weight.parameter.detach()
    if ranks == 1 or not is_divided(weight.parameter):
        return weight.back(part)
    parts = [torch.empty_like(part) for _ in range(ranks)]
    dist.all_gather(parts, part.contiguous(), group=group)
    return weight.back(torch.cat(parts, weight.parameter.partition_dim))


def is_divided(parameter: Any) -> bool:
    """Whether tensor-parallel ranks have parts of it."""
    return bool(getattr(parameter, "tensor_model_parallel", False))


def _same(weight: Tensor) -> Tensor:
    return weight


def _after(first: Any, second: Any) -> Any:
    return lambda weight: second(first(weight))
