"""transformers 4.46 and 4.47: the Trainer did not divide a loss by the number of micro-batches."""

from perfsuite.prove.replay.regression import Regression

OTHERS = "datasets==4.8.4"  # the same on both sides: the newest does not fit what old releases force

REGRESSION = Regression(
    name="transformers_37766",
    saw="With accumulation, a loss of one's own was not divided by the micro-batches: gradients were too large.",
    source="https://github.com/huggingface/transformers/issues/37766",
    good=f"transformers==4.45.2 {OTHERS}",
    bad=f"transformers==4.47.1 {OTHERS}",
    fixed="4.48.0",
    cell="gpt2_tiny-ddp+acc4+nodrop+hf_trainer-cpu_x2",
    moves="gradient_norm",
    neighbours=(f"transformers==4.48.0 {OTHERS}", f"transformers==4.48.3 {OTHERS}"),
)
