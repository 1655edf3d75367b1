"""Layout: the number of ranks in the dimensions that are not the engine's own. The engine uses the rest."""

from perfsuite.catalog.definitions import Technique

TECHNIQUES = (
    Technique(
        "dp",
        "dp<n>: n replicas with different data, whose gradients are averaged.",
        slot="replicas",
        order=1,
        parameter="replicas",
    ),
    Technique(
        "tp",
        "tp<n>: every layer's matrices are divided over n ranks (arXiv 1909.08053).",
        slot="tensor-parallel width",
        order=2,
        parameter="tensor",
    ),
)
