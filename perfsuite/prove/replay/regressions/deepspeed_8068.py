"""DeepSpeed 0.19.3: gradients are clipped to a norm of 1 where the config does not say."""

from perfsuite.prove.replay.regression import Regression

REGRESSION = Regression(
    name="deepspeed_8068",
    saw="Configs that do not mention gradient_clipping trained unclipped, and then clipped to a norm of 1.",
    source="https://github.com/deepspeedai/DeepSpeed/pull/8068",
    good="deepspeed==0.19.2",
    bad="deepspeed==0.19.3",
    cell="gpt2_tiny-zero2+sgd+nodrop+quickstart-cpu_x2",
    moves="allocations",
    neighbours=("deepspeed==0.19.1", "deepspeed==0.19.2"),
)
