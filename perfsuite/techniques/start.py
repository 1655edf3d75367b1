"""Start-up: how long a cell takes from a new process to its second step. meters/start_up.py measures it."""

from perfsuite.catalog.definitions import Technique
from perfsuite.techniques._cold_start import ColdStart

TECHNIQUES = (
    Technique(
        "cold_start",
        "After all steps, each rank starts anew in a process of its own, which imports, builds and trains two steps.",
        slot="start",
        order=85,
        sets={"start": ColdStart},
    ),
)
