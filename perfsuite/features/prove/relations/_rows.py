"""What the rows of a batch hold, by which a step with the same rows is known."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from perfsuite.rank.contents import content_of
from perfsuite.rank.norms import local
from perfsuite.rank.script.batch_size import tensors_in

MASK = "attention_mask"


def fingerprints(inputs: Mapping[str, Any]) -> list[str]:
    """One for each row of a batch: of all tensors that have as many rows as the first one.

    What a mask hides is padding, which micro-batches of other sizes have more or less of.
    """
    tensors = [(name, tensor) for name, tensor in sorted(tensors_in(inputs)) if tensor.dim()]
    if not tensors:
        return []
    rows = tensors[0][1].shape[0]
    tensors = [(name, local(tensor.detach()).cpu().contiguous()) for name, tensor in tensors if tensor.shape[0] == rows]
    mask = mask_of(tensors)
    return [_of_row(tensors, mask, row) for row in range(rows)]


def mask_of(tensors: Sequence[tuple[str, Any]]) -> Any:
    """The attention mask of a batch, or else the only tensor of truth values for each position; None without one."""
    named = [tensor != 0 for name, tensor in tensors if name == MASK]
    truths = [tensor for _, tensor in tensors if tensor.dim() == 2 and str(tensor.dtype) == "torch.bool"]
    return next(iter(named or (truths if len(truths) == 1 else [])), None)


def _of_row(tensors: Iterable[tuple[str, Any]], mask: Any, row: int) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for name, tensor in tensors:
        hides = mask is not None and tensor.shape[:2] == mask.shape
        values = tensor[row][mask[row]] if hides else tensor[row]
        digest.update(name.encode())
        plain_values = values.contiguous()
        digest.update(content_of(plain_values))
    return digest.hexdigest()
