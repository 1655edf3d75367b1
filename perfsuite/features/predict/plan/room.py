"""Whether a layout fits into a device, by the coarse memory of layout_memory.py."""

import math
from statistics import NormalDist

# The deviation of the logarithm of what the allocator reserves, of the 48 cells of nanotron_playbook.csv that ran.
SPREAD = 0.06
LIKELY = 0.8  # the chance to fit from which on a layout is taken
# The room that a recipe which ran may need by this form. Where a memory is printed the form has at most 1.12 times it.
# Of 1,067 published steps one has 1.39 times its room, and what it computes again is not said; one has 1.29, and one
# 1.26 (tensor parallelism over nodes). From DOUBT on a layout does not fit.
DOUBT = 1.4
_AROUND = NormalDist(0.0, SPREAD)


def chance_to_fit(needed: float, room: float) -> float:
    """The chance, 0 to 1, that a layout which needs so many bytes fits into the device's ``room``."""
    return _AROUND.cdf(math.log(room / needed))


def is_impossible(needed: float, room: float) -> bool:
    """Whether no recipe is known that needs so many bytes and ran."""
    return needed > DOUBT * room


def capacity(room: float) -> float:
    """The bytes that a layout may need so that it is ``LIKELY`` to fit."""
    return room / math.exp(_AROUND.inv_cdf(LIKELY))
