"""bf16 is checked for overflow by default, as fp16 is: more operators and one more all-reduce in every step."""

from perfsuite.prove.replay.regression import Regression

REGRESSION = Regression(
    name="deepspeed_8035",
    saw="The default of check_grad_overflow in bf16 became true. Each step looks for inf and NaN in every gradient, "
    "and all ranks wait for one more all-reduce. The config can switch it off.",
    source="https://github.com/deepspeedai/DeepSpeed/pull/8035",
    good="deepspeed==0.19.2",
    bad="deepspeed==0.19.3",
    cell="gpt2_tiny-zero2+bf16+nodrop-cpu_x2",
    moves="collectives",
    neighbours=("deepspeed==0.19.1", "deepspeed==0.19.2"),
)
