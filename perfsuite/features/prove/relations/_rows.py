"""What the rows of a batch hold, by which a step with the same rows is known."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from perfsuite.rank.contents import content_of
from perfsuite.rank.norms import local
from perfsuite.rank.script.batch_size import tensors_in
from perfsuite.rank.tasks import IGNORED

MASK = "attention_mask"
DECODER = "decoder_"  # begins the names of what a decoder is given


def fingerprints(inputs: Mapping[str, Any], config: Any = None, padding: Mapping[str, int] = {}) -> list[str]:
    """One for each row of a batch: of all tensors that have as many rows as the first one.

    What a mask hides is padding, which micro-batches of other sizes have more or less of. So are labels that are not
    asked for, at a row's edges, and what a decoder is given there, by the model's ``config``, or else tokens by the
    names of their tensors.
    """
    tensors = [(name, tensor) for name, tensor in sorted(tensors_in(inputs)) if tensor.dim()]
    if not tensors:
        return []
    rows = tensors[0][1].shape[0]
    tensors = [(name, local(tensor.detach()).cpu().contiguous()) for name, tensor in tensors if tensor.shape[0] == rows]
    mask = mask_of(tensors)
    paddings = {"labels": IGNORED, **padding} | {DECODER + name: of for name, of in _decoded(config)}
    return [_of_row(tensors, mask, row, paddings) for row in range(rows)]


def _decoded(config: Any) -> Iterator[tuple[str, int]]:
    """What a decoder is given beside an encoder, and what pads it."""
    padding = getattr(config, "pad_token_id", None)
    if getattr(config, "is_encoder_decoder", False) and isinstance(padding, int):
        yield from (("input_ids", padding), (MASK, 0))


def mask_of(tensors: Sequence[tuple[str, Any]]) -> Any:
    """The attention mask of a batch, or else the only tensor of truth values for each position, or what lengths say;
    None without one.
    """
    named = [tensor != 0 for name, tensor in tensors if name == MASK]
    truths = [tensor for _, tensor in tensors if tensor.dim() == 2 and str(tensor.dtype) == "torch.bool"]
    found = named or (truths if len(truths) == 1 else [])
    return found[0] if found else _by_lengths([tensor for _, tensor in tensors])


def _by_lengths(tensors: Sequence[Any]) -> Any:
    """Of features with frames, [rows, frames, …], which are padded to the longest row: another tensor has a length for
    each row.
    """
    for features in tensors:
        if features.dim() > 1 and features.is_floating_point():
            rows, frames = features.shape[:2]
            for lengths in tensors:
                whole = lengths.shape == (rows,) and not lengths.is_floating_point()
                if whole and int(lengths.max()) == frames and int(lengths.min()) > 0:
                    return lengths.new_ones((rows, frames)).cumsum(1) <= lengths[:, None]
    return None


def _of_row(tensors: Iterable[tuple[str, Any]], mask: Any, row: int, paddings: Mapping[str, int]) -> str:
    digest = hashlib.blake2b(digest_size=8)
    decodes = any(name.startswith(DECODER) for name in paddings)
    for name, tensor in tensors:
        own = decodes and name in paddings
        hides = mask is not None and tensor.shape[:2] == mask.shape and not own
        values = tensor[row][mask[row]] if hides else tensor[row]
        if name in paddings and values.dim() == 1:
            values = without_edges(values, paddings[name])
        digest.update(name.encode())
        plain_values = values.contiguous()
        digest.update(content_of(plain_values))
    return digest.hexdigest()


def without_edges(values: Any, padding: int) -> Any:
    """What is between the padding at both ends of a vector."""
    real = (values != padding).nonzero()
    return values[real[0, 0] : real[-1, 0] + 1] if len(real) else values[:0]
