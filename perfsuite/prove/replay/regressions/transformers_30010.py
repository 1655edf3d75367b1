"""Llama needed more memory."""

from perfsuite.prove.replay.regression import Regression

REGRESSION = Regression(
    name="transformers_30010",
    saw="Llama at 1,280 tokens needed almost 1 GB more, and ran out of memory at 1,536.",
    source="https://github.com/huggingface/transformers/issues/30010",
    good="transformers==4.37.2",
    bad="transformers==4.39.3",
    why_not="CUDA's attention kernels need the memory; on a CPU the peak of llama_tiny was the same with both releases",
)
