"""Epochs: training that is interrupted by evaluations, as in a script."""

from perfsuite.catalog.definitions import Technique

TECHNIQUES = (
    Technique(
        name="epochs",
        slot="epochs",
        order=60,
        meaning="epochs<n>: the timed steps are repeated n times, each time followed by an evaluation in eval mode.",
        parameter="epochs",
    ),
)
