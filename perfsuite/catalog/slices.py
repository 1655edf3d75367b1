"""The slices of devices that a cloud lends whole: a grid in two or three dimensions, whose sizes are powers of two.

They are those of docs.cloud.google.com/tpu/docs/v5e, v5p and v6e: one chip, 2×2, 2×4, 4×4 and so on; in three
dimensions 2×2×1, 2×2×2, 2×2×4, 2×4×4 and so on.
"""

import math

from perfsuite.catalog.definitions import Device

MOST = 256  # devices of the largest slice of v5e and v6e


def slice_of(topology: str, ranks: int) -> tuple[int, ...]:
    """The shape of the slice with so many devices; empty if there is none."""
    if ranks > MOST:
        return ()
    dimensions = topology.count("{}")
    shape = [1] * dimensions if ranks == 1 else [2, 2, *[1] * (dimensions - 2)]
    while math.prod(shape) < ranks:
        shape[shape.index(min(shape))] *= 2
    if math.prod(shape) != ranks:
        return ()
    return tuple(shape if min(shape) == 1 else sorted(shape))


def why_no_slice(device: Device, ranks: int) -> str:
    """The reason why so many devices are no slice; empty if they are."""
    if slice_of(device.topology, ranks):
        return ""
    sizes = f"1, 4, 8 and on to {MOST} devices"
    return f"{device.name} comes in slices of {sizes}, each twice the one before, so not of {ranks}."
