"""Gradient accumulation: several micro-batches make one optimizer step."""

from perfsuite.catalog.definitions import Technique

TECHNIQUES = (
    Technique(
        "acc",
        "acc<n>: n micro-batches per rank and optimizer step.",
        slot="gradient accumulation",
        order=40,
        parameter="accumulation",
    ),
)
