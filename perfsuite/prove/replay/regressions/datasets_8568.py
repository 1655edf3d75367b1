"""Ranks that skip rows of a split dataset read rows of each other."""

from perfsuite.prove.replay.regression import Regression

REGRESSION = Regression(
    name="datasets_8568",
    saw="Each rank read 15 rows where 7 are right, after skip() of a stream that was split by node. No release before "
    "5.1.0 is right, so it is compared with the first that is.",
    source="https://github.com/huggingface/datasets/issues/8568",
    good="datasets==5.1.0",
    bad="datasets==5.0.1",
    fixed="5.1.0",
    cell="rows-hf_iterable-cpu_x2",
    moves="wrongly_resumed_samples",
    neighbours=("datasets==5.1.0", "datasets==5.2.0"),
)
