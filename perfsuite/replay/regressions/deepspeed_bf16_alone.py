"""DeepSpeed 0.17.6 and later: bf16 without ZeRO accumulates in bf16, and counts a step that was none.

FP16_UnfusedOptimizer makes its optimizer step on gradients of zero, so that its state is allocated. Adam's bias
correction is then that of step 2 in the first real step: an update of 0.1 / 0.19 of the right one for a large epsilon.
Up to 0.17.5 the optimizer was BF16_Optimizer, which accumulates in fp32 and makes no such step. Both were read in the
code; the update of 0.19.8 was measured, an error of 0.474 in `llama_tiny-autotp+bf16`.
"""

from perfsuite.replay.regression import Regression

REGRESSION = Regression(
    name="deepspeed_bf16_alone",
    saw="In bf16 without ZeRO, the first update of Adam is computed as its second, and gradients accumulate in bf16.",
    source="found by perfsuite; see `initialize_optimizer_states` in DeepSpeed's fp16/unfused_optimizer.py. A similar "
    "defect of ZeRO: https://github.com/deepspeedai/DeepSpeed/pull/5104",
    good="deepspeed==0.17.5",
    bad="deepspeed==0.17.6",
    why_not="only `autotp` has bf16 without ZeRO, and it needs DeepSpeed 0.18.6 or newer",
)
