"""Gradient clipping: scale the gradient down if its norm is larger than 1."""

import functools

from perfsuite.catalog.definitions import Technique

_clipping = functools.partial(Technique, slot="gradient clipping", order=45)
TECHNIQUES = (
    _clipping("no_clip", "Gradients are not scaled.", default=True),
    _clipping(
        "clip",
        "Gradients are scaled so that their norm is at most 1, the default of transformers' Trainer.",
        sets={"clip": 1.0},
    ),
)
