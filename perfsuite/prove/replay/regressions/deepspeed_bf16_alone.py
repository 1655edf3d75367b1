"""DeepSpeed 0.17.6 and later: bf16 without ZeRO accumulates in bf16, and counts a step that was none.

FP16_UnfusedOptimizer makes its optimizer step on gradients of zero, so that its state is allocated. The first real step
then has the bias correction of Adam's second: 0.1 / 0.19 of the right mean. Up to 0.17.5 the optimizer was
BF16_Optimizer, which makes no such step. A linear layer on one rank, with epsilon 1, changed by 0.80 with 0.17.5, which
is right, and by 0.55 with 0.17.6 and 0.19.8. `llama_tiny-autotp+bf16` has an update error of 0.47 = 1 - 0.1 / 0.19.
"""

from perfsuite.prove.replay.regression import Regression

REGRESSION = Regression(
    name="deepspeed_bf16_alone",
    saw="In bf16 without ZeRO, the first update of Adam is computed as its second, and gradients accumulate in bf16.",
    source="found by perfsuite, see `initialize_optimizer_states` in DeepSpeed's fp16/unfused_optimizer.py. The ZeRO "
    "stages had the same: https://github.com/deepspeedai/DeepSpeed/pull/5104",
    good="deepspeed==0.17.5",
    bad="deepspeed==0.17.6",
    why_not="only `autotp` has bf16 without ZeRO here, and it needs a newer DeepSpeed; a script of one rank showed it",
)
