"""Activation checkpointing: recompute activations in backward instead of keeping them (arXiv 1604.06174)."""

from perfsuite.catalog.definitions import Technique

TECHNIQUES = (
    Technique(
        name="no_ckpt",
        slot="activation checkpointing",
        order=30,
        meaning="Every activation that backward needs is kept.",
        default=True,
    ),
    Technique(
        name="ckpt",
        slot="activation checkpointing",
        order=30,
        meaning="Only each layer's input is kept; the layer is computed again in backward.",
        sets={"checkpointing": True},
    ),
)
