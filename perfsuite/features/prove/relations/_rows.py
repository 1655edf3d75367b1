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
    paddings = {"labels": [IGNORED]} | {name: [token] for name, token in padding.items()} | dict(_decoded(config))
    masks = dict(_masks(tensors, paddings))
    return [_of_row(tensors, masks, row, paddings) for row in range(rows)]


def _masks(tensors: Sequence[tuple[str, Any]], paddings: Mapping[str, Sequence[int]]) -> Iterator[tuple[str, Any]]:
    """For each tensor with positions, what is no padding. The mask of an encoder is not that of its decoder."""
    mask = mask_of(tensors)
    decodes = any(name.startswith(DECODER) for name in paddings)
    for name, tensor in tensors:
        if tensor.dim() < 2 or (decodes and name in paddings):
            continue
        if mask is not None and tensor.shape[:2] == mask.shape:
            yield name, mask
        elif (found := _by_lengths(tensor, tensors)) is not None:
            yield name, found


def _decoded(config: Any) -> Iterator[tuple[str, list[int]]]:
    """What a decoder is given beside an encoder, and what pads it. The end token has a place in shorter rows alone: the
    longest one's falls away where labels are shifted.
    """
    padding, end = (getattr(config, name, None) for name in ("pad_token_id", "eos_token_id"))
    if getattr(config, "is_encoder_decoder", False) and isinstance(padding, int):
        yield f"{DECODER}input_ids", [padding, *([end] if isinstance(end, int) else [])]
        yield DECODER + MASK, [0]


def mask_of(tensors: Sequence[tuple[str, Any]]) -> Any:
    """The attention mask of a batch, or else the only tensor of truth values for each position; None without one."""
    named = [tensor != 0 for name, tensor in tensors if name == MASK]
    truths = [tensor for _, tensor in tensors if tensor.dim() == 2 and str(tensor.dtype) == "torch.bool"]
    return next(iter(named or (truths if len(truths) == 1 else [])), None)


def _by_lengths(padded: Any, tensors: Iterable[tuple[str, Any]]) -> Any:
    """What is no padding of a tensor, [rows, positions, …], if another one has a length for each row, and all that is
    beyond is one number. None if there is no such tensor.
    """
    rows, positions = padded.shape[:2]
    for _, lengths in tensors:
        if lengths.shape != (rows,) or lengths.is_floating_point():
            continue
        if int(lengths.max()) == positions and int(lengths.min()) > 0:
            mask = lengths.new_ones((rows, positions)).cumsum(1) <= lengths[:, None]
            beyond = padded[~mask]
            if not beyond.numel() or bool((beyond == beyond.flatten()[0]).all()):
                return mask
    return None


def _of_row(
    tensors: Iterable[tuple[str, Any]], masks: Mapping[str, Any], row: int, paddings: Mapping[str, Sequence[int]]
) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for name, tensor in tensors:
        mask = masks.get(name)
        values = tensor[row] if mask is None else tensor[row][mask[row]]
        if name in paddings and values.dim() == 1:
            values = without_edges(values, paddings[name])
        digest.update(name.encode())
        plain_values = values.contiguous()
        digest.update(content_of(plain_values))
    return digest.hexdigest()


def without_edges(values: Any, paddings: Sequence[int]) -> Any:
    """What is between padding tokens at both ends of a vector."""
    real = sum(values == padding for padding in paddings) == 0
    places = real.nonzero()
    return values[places[0, 0] : places[-1, 0] + 1] if len(places) else values[:0]
