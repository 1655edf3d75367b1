"""ZeRO-2 with its optimizer on the host lost gradients of an accumulated step."""

from perfsuite.prove.replay.regression import Regression

REGRESSION = Regression(
    name="deepspeed_6550",
    saw="ZeRO-2 with CPU offload and accumulation 4 computed a gradient norm of 2.85 where 3.58 is right.",
    source="https://github.com/deepspeedai/DeepSpeed/issues/6550",
    good="deepspeed==0.15.1",
    bad="deepspeed==0.16.4",
    fixed="0.19.0",
    cell="gpt2_tiny-zero2+offload_optimizer+acc4+nodrop-cpu_x2",
    moves="gradient_norm",
    neighbours=("deepspeed==0.15.0", "deepspeed==0.15.1"),
)
