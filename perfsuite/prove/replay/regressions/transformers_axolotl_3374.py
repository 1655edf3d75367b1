"""Loading a model needed twice the memory."""

from perfsuite.prove.replay.regression import Regression

REGRESSION = Regression(
    name="transformers_axolotl_3374",
    saw="A GPU needed 94 GB instead of 48 GB while a checkpoint was loaded.",
    source="https://github.com/axolotl-ai-cloud/axolotl/issues/3374",
    good="transformers==4.57.6",
    bad="transformers==5.0.0",
    why_not="cells build models with random weights and load no checkpoint",
)
