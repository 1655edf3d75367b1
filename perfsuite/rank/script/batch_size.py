"""What a batch tells of its size. It is read as a DataLoader makes it, since nothing may keep it alive, or else as a
module is called with it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perfsuite.rank.contents import content_of
from perfsuite.rank.tasks import IGNORED
from perfsuite.rank.torch_types import Tensor


@dataclass(frozen=True)
class BatchSize:
    """Its samples, tokens, the labels among them that are trained, and the tokens that are padding in all rows. 0 or
    None is what it does not tell.
    """

    samples: int = 0
    tokens: int = 0
    labels: int | None = None
    unused: int | None = None


def size_of(batch: Any) -> BatchSize:
    """Samples are the first dimension, if all tensors have the same. Tokens are the positions of ``input_ids`` with
    their padding or, if there are only tensors of integers of one shape, sequences by positions, those of one of them.
    """
    tensors = [tensor for _, tensor in tensors_in(batch)]
    firsts = {tensor.shape[0] for tensor in tensors if tensor.dim()}
    ids: Any = batch.get("input_ids") if isinstance(batch, Mapping) else None
    if (
        ids is None
        and len(tensors) > 1
        and all(map(_may_be_tokens, tensors))
        and len({tensor.shape for tensor in tensors}) == 1
    ):
        ids = tensors[0]
    tokens = ids.numel() if hasattr(ids, "numel") else 0
    labels = _trained(batch["labels"]) if isinstance(batch, Mapping) and "labels" in batch else None
    unused = _unused(batch["attention_mask"], ids) if isinstance(batch, Mapping) and "attention_mask" in batch else None
    return BatchSize(firsts.pop() if len(firsts) == 1 else 0, tokens, labels, unused)


def total_of(sizes: Sequence[BatchSize]) -> BatchSize:
    """Of the batches of a step: what one does not tell is not known."""
    known = [[size.samples for size in sizes], [size.tokens for size in sizes]]
    samples, tokens = (sum(counts) if all(counts) else 0 for counts in known)
    told = ([size.labels for size in sizes], [size.unused for size in sizes])
    labels, unused = (sum(counts) if counts and None not in counts else None for counts in told)  # type: ignore[arg-type]
    return BatchSize(samples, tokens, labels, unused)


def _trained(labels: Any) -> int | None:
    """How many of them the losses of torch do not leave out. Steps count operators, so it calls none."""
    numbers = _numbers(labels)
    return None if numbers is None else int((numbers != IGNORED).sum())


def _unused(mask: Any, ids: Any) -> int | None:
    """How many positions are in columns that the mask leaves out in all rows."""
    numbers = _numbers(mask)
    if numbers is None or numbers.ndim != 2 or getattr(ids, "shape", None) != mask.shape:
        return None
    return int((~numbers.any(0)).sum()) * len(numbers)


def _numbers(tensor: Any) -> Any:
    """Those of a tensor on the host, as numpy's; None of any other."""
    import numpy
    import torch

    kinds = {torch.int64: "int64", torch.int32: "int32", torch.bool: "bool"}
    is_there = isinstance(tensor, torch.Tensor) and tensor.device.type == "cpu" and tensor.is_contiguous()
    if not is_there or tensor.dtype not in kinds:
        return None
    return numpy.frombuffer(content_of(tensor), kinds[tensor.dtype]).reshape(tuple(tensor.shape))


def _may_be_tokens(tensor: Tensor) -> bool:
    import torch

    return tensor.dim() == 2 and tensor.dtype in (torch.int64, torch.int32)


def tensors_in(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The tensors of any structure of inputs, with their names in it."""
    if hasattr(value, "untyped_storage"):
        yield name, value
    elif isinstance(value, Mapping | list | tuple):
        for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from tensors_in(item, f"{name}.{key}" if name else str(key))
