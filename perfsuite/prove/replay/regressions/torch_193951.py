"""A matmul in fp16 became 1,900 times slower on CPUs with AVX10."""

from perfsuite.prove.replay.regression import Regression

REGRESSION = Regression(
    name="torch_193951",
    saw="A matmul of 2,048 × 2,048 in fp16 took 15,527 ms instead of 8.26 ms.",
    source="https://github.com/pytorch/pytorch/issues/193951",
    good="torch==2.13.0",
    bad="torch==2.14.0",
    why_not="needs a CPU with AVX10, and a CPU build of torch 2.14.0, which the package index here lacks",
)
