"""transformers 4.54: the Trainer gathers the number of tokens of every step."""

from perfsuite.replay.regression import Regression

REGRESSION = Regression(
    name="transformers_39395",
    saw="The default of average_tokens_across_devices became true: one more all-gather in every step of the Trainer, "
    "and another loss where ranks have different numbers of tokens.",
    source="https://github.com/huggingface/transformers/pull/39395",
    good="transformers==4.52.4",
    bad="transformers==4.54.1",
    why_not="`hf_trainer` computes a loss of its own, for which the Trainer counts no tokens",
)
