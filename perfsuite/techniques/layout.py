"""Layout: the number of ranks in the dimensions that are not the engine's own. The engine uses the rest."""

from perfsuite.catalog.definitions import Technique
from perfsuite.rank.tp_plan import why_not_divided

TECHNIQUES = (
    Technique(
        name="dp",
        slot="replicas",
        order=1,
        meaning="dp<n>: n replicas with different data, whose gradients are averaged.",
        parameter="replicas",
    ),
    Technique(
        name="tp",
        slot="tensor-parallel width",
        order=2,
        meaning="tp<n>: every layer's matrices are divided over n ranks (arXiv 1909.08053).",
        parameter="tensor",
        why_not=why_not_divided,
    ),
)
