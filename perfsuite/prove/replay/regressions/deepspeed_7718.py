"""ZeRO-2 lost gradients of an accumulated step."""

from perfsuite.prove.replay.regression import Regression

REGRESSION = Regression(
    name="deepspeed_7718",
    saw="ZeRO-2 with accumulation computed a gradient norm of 1.969 where 3.584 is right, at equal losses.",
    source="https://github.com/deepspeedai/DeepSpeed/issues/7718",
    good="deepspeed==0.17.5",
    bad="deepspeed==0.18.2",
    fixed="0.18.3",
    cell="gpt2_tiny-zero2+acc4+nodrop-cpu_x2",
    moves="gradient_norm",
    neighbours=("deepspeed==0.17.4", "deepspeed==0.17.5"),
)
