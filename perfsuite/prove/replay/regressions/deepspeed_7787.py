"""DeepSpeed 0.18.3 and later: a pipeline without ZeRO ended in its first backward."""

from perfsuite.prove.replay.regression import Regression

REGRESSION = Regression(
    name="deepspeed_7787",
    saw='Pipelines with accumulation ended with "Direct calls to tensor.backward() are not supported".',
    source="https://github.com/deepspeedai/DeepSpeed/pull/7787",
    good="deepspeed==0.18.2",
    bad="deepspeed==0.18.3",
    fixed="0.18.9",
    why_not="only pipelines without ZeRO end; `pp_deepspeed` has ZeRO stage 1, and was run with both releases",
)
