"""ZeRO-2 became slower: each gradient goes through more Python."""

from perfsuite.prove.replay.regression import Regression

REGRESSION = Regression(
    name="deepspeed_7885",
    saw="A step of ZeRO-2 took 0.1265 s instead of 0.0505 s.",
    source="https://github.com/deepspeedai/DeepSpeed/issues/7885",
    good="deepspeed==0.18.4",
    bad="deepspeed==0.18.5",
    cell="gpt2_tiny-zero2+bf16+nodrop-cpu_x2",
    moves="python_calls",
    least=0.05,
    neighbours=("deepspeed==0.18.3", "deepspeed==0.18.4"),
)
