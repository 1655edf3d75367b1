"""Sketches: a few sums that stand for a tensor, so that two launches can be compared without keeping its numbers.

Each element has a fixed random sign, and each SUMS-th goes into the same sum. The squared distance of two sketches is,
on average, that of the two tensors (Charikar, Chen and Farach-Colton 2002, "Finding frequent items in data streams").
For one tensor it spreads by sqrt(2 / SUMS); over the parameters of a model by much less.
"""

import functools
import math
from inspect import unwrap
from typing import Any

from perfsuite.records.gradients import Sketch

SUMS = 16
CHUNK = 2**18  # elements that have the same signs, but for one of the whole chunk
SEED = 20_020_707


def sketch(tensor: Any) -> Sketch:
    """That of all elements in their order; empty if one is not finite."""
    import torch

    with torch.no_grad():
        flat = tensor.detach().reshape(-1)
        signs, of_chunks = _signs(str(flat.device)), _signs("cpu")
        sums = torch.zeros(SUMS, dtype=torch.float64, device=flat.device)
        for number, part in enumerate(flat.split(CHUNK)):
            signed = part.double() * signs[: len(part)] * of_chunks[number % CHUNK].item()
            sums += torch.nn.functional.pad(signed, (0, -len(part) % SUMS)).reshape(-1, SUMS).sum(0)
        found: list[float] = sums.tolist()
    return found if all(map(math.isfinite, found)) else []


def row_sketch(values: Any, mask: Any = None) -> Any:
    """The tensor of sums over all rows and positions: of the features, and of their sizes. Neither depends on the
    order of the rows. ``mask`` leaves out positions.
    """
    import torch

    with torch.no_grad():
        rows = values.detach().double()
        if mask is not None and rows.dim() > mask.dim() and rows.shape[: mask.dim()] == mask.shape:
            rows = rows[mask]
        rows = rows.reshape(-1, rows.shape[-1]) if rows.dim() > 1 else rows.reshape(-1, 1)
        signs = _signs(str(rows.device))[: rows.shape[-1]]
        both = torch.stack([rows.sum(0)[:CHUNK] * signs, rows.abs().sum(0)[:CHUNK]])
        padded = torch.nn.functional.pad(both, (0, -both.shape[1] % SUMS))
        return padded.reshape(2, -1, SUMS).sum(1).reshape(-1).cpu()


def position_sketches(values: Any, mask: Any) -> Any:
    """The tensor, [positions, SUMS], of the sketch of each position's features. ``mask`` leaves out positions."""
    import torch

    with torch.no_grad():
        features = values.detach()[mask].double().flatten(1)[:, :CHUNK]
        signed = features * _signs(str(features.device))[: features.shape[1]]
        padded = torch.nn.functional.pad(signed, (0, -features.shape[1] % SUMS))
        return padded.reshape(len(padded), -1, SUMS).sum(1).float().cpu()


@functools.cache
def _signs(device: str) -> Any:
    import torch

    randint = unwrap(torch.randint)  # a forward's own may be alike: _draws.py
    signs = randint(2, (CHUNK,), generator=torch.Generator().manual_seed(SEED)) * 2.0 - 1.0
    return signs.double().to(device)


def distance(one: Sketch, other: Sketch) -> float:
    """Of the tensors; infinite if one of them is not finite."""
    if len(one) != len(other) or not one:
        return 0.0 if one == other else math.inf
    return math.dist(one, other)


def size(one: Sketch) -> float:
    """The 2-norm of the tensor; infinite if it is not finite."""
    return math.hypot(*one) if one else math.inf
