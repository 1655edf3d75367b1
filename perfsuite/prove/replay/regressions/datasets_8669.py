"""Ranks that share a shuffled stream each read all of it."""

from perfsuite.prove.replay.regression import Regression

REGRESSION = Regression(
    name="datasets_8669",
    saw="A shuffled stream of fewer than 20 files counts as one shard: every rank reads all of it, and skips most.",
    source="https://github.com/huggingface/datasets/issues/8669",
    good="datasets==4.8.5",
    bad="datasets==5.0.0",
    fixed="5.1.0",
    cell="rows-hf_iterable-cpu_x2",
    moves="drawn_samples",
    neighbours=("datasets==4.8.4", "datasets==4.8.5"),
)
