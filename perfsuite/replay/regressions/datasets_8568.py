"""Ranks that skip rows of a split dataset read rows of each other."""

from perfsuite.replay.regression import Regression

REGRESSION = Regression(
    name="datasets_8568",
    saw="Each rank read 15 rows where 7 are right, after skip() of a dataset that was split by node.",
    source="https://github.com/huggingface/datasets/issues/8568",
    good="datasets==3.2.0",
    bad="datasets==5.0.1",
    why_not="wrong in every release from 3.2.0 to 5.0.1, so no release is good; and no cell reads a dataset",
)
