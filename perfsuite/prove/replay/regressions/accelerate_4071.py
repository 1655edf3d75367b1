"""A resumed epoch has the order of the first one."""

from perfsuite.prove.replay.regression import Regression

REGRESSION = Regression(
    name="accelerate_4071",
    saw="After skip_first_batches in a later epoch, the rest of the epoch came in the order of epoch 0: some samples "
    "trained twice, others never. No release before the fix is right, so it is compared with the fixed one.",
    source="https://github.com/huggingface/accelerate/pull/4071",
    good="accelerate==1.15.0",
    bad="accelerate==1.14.0",
    fixed="1.15.0",
    cell="rows-accelerate_shard-cpu_x2",
    moves="wrongly_resumed_samples",
)
