"""Gradient accumulation: several micro-batches make one optimizer step."""

from perfsuite.catalog.definitions import Technique

TECHNIQUES = (
    Technique(
        name="acc",
        slot="gradient accumulation",
        order=40,
        meaning="acc<n>: n micro-batches per rank and optimizer step.",
        parameter="accumulation",
    ),
)
