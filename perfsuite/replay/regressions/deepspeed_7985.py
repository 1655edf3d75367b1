"""ZeRO-1 in bf16 reduced the wrong gradients of an accumulated step."""

from perfsuite.replay.regression import Regression

REGRESSION = Regression(
    name="deepspeed_7985",
    saw="ZeRO-1 in bf16 with accumulation computed another gradient norm: 4.317 where 3.584 is right.",
    source="https://github.com/deepspeedai/DeepSpeed/issues/7985",
    good="deepspeed==0.18.2",
    bad="deepspeed==0.18.6",
    fixed="0.19.0",
    cell="gpt2_tiny-zero1+bf16+acc4+nodrop-cpu_x2",
    moves="gradient_norm",
    neighbours=("deepspeed==0.18.1", "deepspeed==0.18.2"),
)
