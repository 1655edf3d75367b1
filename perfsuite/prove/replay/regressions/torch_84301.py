"""The DataLoader became slower over datasets."""

from perfsuite.prove.replay.regression import Regression

REGRESSION = Regression(
    name="torch_84301",
    saw="Loading rows of a dataset became slower with torch 1.13.0.",
    source="https://github.com/pytorch/pytorch/issues/84301",
    good="torch==1.12.1",
    bad="torch==1.13.0",
    why_not="`perfsuite ladder` shows it: see DataLoader over datasets",
)
