"""A prediction of a cell."""

from perfsuite.features.predict.prediction import Prediction
from perfsuite.records.formats import FORMAT

CELL = "gpt2_tiny-single+bf16-h100_x1"


PREDICTION = Prediction(
    format=FORMAT,
    cell=CELL,
    outcome="fits",
    world_size=1,
    peak_bytes=3000,
    parts={"parameters": 1000, "activations": 2000},
    ranks={0: 3000},
    allocated_bytes=3072,
    reserved_bytes=2 * 2**20,
    smallest_bytes=2 * 2**20,
    versions={"torch": "2.13.0", "transformers": "5.22.0"},
)
