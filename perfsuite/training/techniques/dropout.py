"""Dropout: on as the model defines it, or off, so that engines can be compared number by number."""

from perfsuite.catalog.definitions import Technique

TECHNIQUES = (
    Technique(
        name="dropout",
        slot="dropout",
        order=50,
        meaning="Dropout as the model defines it.",
        default=True,
    ),
    Technique(
        name="nodrop",
        slot="dropout",
        order=50,
        meaning="Every dropout probability is zero.",
        sets={"dropout": False},
    ),
)
