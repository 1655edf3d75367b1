"""DeepSpeed: gradients of a model that returns loss and logits are divided by the micro-batches twice.

Every tensor that the model returned has a hook that divides the gradient which goes through. The code of 0.19.6 no
longer does so in engine.backward(); that was read, not run.
"""

from perfsuite.prove.replay.regression import Regression

REGRESSION = Regression(
    name="deepspeed_scaled_twice",
    saw="With accumulation 4, the gradients of transformers' models are a quarter of what they should be.",
    source="found by perfsuite, see `_backward_prologue_per_tensor` in DeepSpeed's engine.py; no issue is known",
    good="deepspeed==0.18.2",
    bad="deepspeed==0.18.6",
    fixed="0.19.6",
    cell="gpt2_tiny-zero1+bf16+acc4+nodrop-cpu_x2",
    moves="gradient_norm",
    neighbours=("deepspeed==0.18.1", "deepspeed==0.18.2"),
)
