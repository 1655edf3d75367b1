"""Mistral's attention got a mask of s × s elements."""

from perfsuite.prove.replay.regression import Regression

REGRESSION = Regression(
    name="transformers_30461",
    saw="Mistral trained with 1,918 instead of 3,083 tokens per second at 8,192 tokens.",
    source="https://github.com/huggingface/transformers/issues/30461",
    good="transformers==4.39.3",
    bad="transformers==4.40.0",
    why_not="the catalog has no Mistral, and both releases are below the stated range",
)
