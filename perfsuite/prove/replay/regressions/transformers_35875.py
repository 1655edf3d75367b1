"""GPT-2, BLOOM and others got the loss function of the other models, which first casts all logits to fp32.

Under autocast nothing changes: cross entropy is in fp32 there. Without it, the cast and its gradient are the peak.
"""

from perfsuite.prove.replay.regression import Regression

REGRESSION = Regression(
    name="transformers_35875",
    saw="GPT-2 and BLOOM in pure bf16 hold their logits in fp32, too, while the loss is computed. Of the models that "
    "had this loss before, users say so: https://github.com/huggingface/transformers/issues/38452.",
    source="https://github.com/huggingface/transformers/pull/35875",
    good="transformers==4.48.0",
    bad="transformers==4.48.3",
    cell="gpt2_tiny-single+pure_bf16+nodrop-cpu_x1",
    moves="peak_memory_bytes",
    least=0.05,
    neighbours=("transformers==4.47.1", "transformers==4.48.0"),
)
