"""A stream that Accelerate prepared could not be read."""

from perfsuite.prove.replay.regression import Regression

REGRESSION = Regression(
    name="accelerate_3643",
    saw="An IterableDataset of Hugging Face that Accelerate prepared ended with an AttributeError.",
    source="https://github.com/huggingface/accelerate/issues/3643",
    good="accelerate==1.7.0",
    bad="accelerate==1.8.0",
    fixed="1.8.1",
    cell="rows-accelerate_stream-cpu_x2",
    neighbours=("accelerate==1.6.0", "accelerate==1.7.0"),
)
