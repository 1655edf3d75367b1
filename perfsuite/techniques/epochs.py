"""Epochs: training that is interrupted by evaluations, as in a script."""

from perfsuite.catalog.definitions import Technique

TECHNIQUES = (
    Technique(
        "epochs",
        "epochs<n>: the timed steps are repeated n times, each time followed by an evaluation in eval mode.",
        slot="epochs",
        order=60,
        parameter="epochs",
    ),
)
