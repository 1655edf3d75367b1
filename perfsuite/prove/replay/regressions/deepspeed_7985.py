"""DeepSpeed 0.18.6 to 0.18.9: ZeRO-1 in bf16 left the last micro-batch out of the all-reduce."""

from perfsuite.prove.replay.regression import Regression

REGRESSION = Regression(
    name="deepspeed_7985",
    saw="ZeRO-1 in bf16 that accumulates in fp32 computed a gradient norm of 4.317 where 3.584 is right.",
    source="https://github.com/deepspeedai/DeepSpeed/pull/7985",
    good="deepspeed==0.18.2",
    bad="deepspeed==0.18.6",
    fixed="0.19.0",
    why_not="no technique sets grad_accum_dtype to fp32; without it, deepspeed_scaled_twice hides it in these releases",
)
