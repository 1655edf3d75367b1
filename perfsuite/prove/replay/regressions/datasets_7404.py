"""Filtering a dataset became a hundred times slower."""

from perfsuite.prove.replay.regression import Regression

REGRESSION = Regression(
    name="datasets_7404",
    saw="Filtering 20,000 rows took 3.17 s instead of 0.03 s.",
    source="https://github.com/huggingface/datasets/issues/7404",
    good="datasets==3.2.0",
    bad="datasets==3.3.0",
    fixed="3.3.1",
    cell="rows-hf_map-cpu_x2",
    moves="python_calls",
    neighbours=("datasets==3.1.0", "datasets==3.2.0"),
)
