"""DeepSpeed up to 0.17.4: a decorator for torch.compile runs in every step that is not compiled."""

from perfsuite.prove.replay.regression import Regression

REGRESSION = Regression(
    name="deepspeed_7498",
    saw="A decorator that matters under torch.compile alone took 8 to 12 % of a step on HPUs.",
    source="https://github.com/deepspeedai/DeepSpeed/pull/7498",
    good="deepspeed==0.17.5",
    bad="deepspeed==0.17.4",
    fixed="0.17.5",
    cell="gpt2_tiny-zero3+bf16+nodrop-cpu_x2",
    moves="python_calls",
    least=0.05,
    neighbours=("deepspeed==0.17.5", "deepspeed==0.17.6"),
)
