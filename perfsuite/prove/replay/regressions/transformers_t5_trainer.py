"""transformers 5: the Trainer multiplies T5's gradients by the number of ranks."""

from perfsuite.prove.replay.regression import Regression

OTHERS = "datasets==4.8.4"  # the same on both sides: the newest does not fit what old releases force

REGRESSION = Regression(
    name="transformers_t5_trainer",
    saw="T5 returns the mean of its loss, and ignores the number of tokens that it now accepts. The Trainer scales it "
    "as if it were a sum: by the ranks, and with accumulation also by the micro-batches. It is still so in 5.23.",
    source="found by perfsuite, see `compute_loss` in transformers' trainer.py; no issue is known",
    good=f"transformers==4.57.6 {OTHERS}",
    bad=f"transformers==5.0.0 {OTHERS}",
    cell="t5_tiny-ddp+nodrop+hf_trainer-cpu_x2",
    moves="gradient_norm",
    neighbours=(f"transformers==4.54.1 {OTHERS}", f"transformers==4.57.6 {OTHERS}"),
)
