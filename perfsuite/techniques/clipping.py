"""Gradient clipping: scale the gradient down if its norm is larger than 1."""

from perfsuite.catalog.definitions import Technique

TECHNIQUES = (
    Technique(
        name="no_clip",
        slot="gradient clipping",
        order=45,
        meaning="Gradients are not scaled.",
        default=True,
    ),
    Technique(
        name="clip",
        slot="gradient clipping",
        order=45,
        meaning="Gradients are scaled so that their norm is at most 1, the default of transformers' Trainer.",
        sets={"clip": 1.0},
    ),
)
