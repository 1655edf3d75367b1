"""transformers 4.54: the Trainer gathers the number of tokens of every step."""

from perfsuite.prove.replay.regression import Regression

OTHERS = "datasets==4.8.4"  # the same on both sides: the newest does not fit what old releases force

REGRESSION = Regression(
    name="transformers_39395",
    saw="The default of average_tokens_across_devices became true: one more all-gather in every step of the Trainer, "
    "and another loss where ranks have different numbers of tokens.",
    source="https://github.com/huggingface/transformers/pull/39395",
    good=f"transformers==4.52.4 {OTHERS}",
    bad=f"transformers==4.54.1 {OTHERS}",
    cell="gpt2_tiny-ddp+nodrop+hf_trainer-cpu_x2",
    moves="collectives",
    neighbours=(f"transformers==4.50.3 {OTHERS}", f"transformers==4.52.4 {OTHERS}"),
)
