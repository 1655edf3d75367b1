"""peft could no longer be imported after transformers 5 had removed a class.

torchao is pinned, because that of the environment has removed a class that this peft imports, too.
"""

from perfsuite.prove.replay.regression import Regression

OTHERS = "peft==0.17.1 torchao==0.14.1"

REGRESSION = Regression(
    name="peft_3333",
    saw="After an upgrade to transformers 5, `import peft` ended with "
    "\"ImportError: cannot import name 'HybridCache' from 'transformers'\".",
    source="https://github.com/huggingface/peft/issues/3333",
    good=f"transformers==4.57.6 {OTHERS}",
    bad=f"transformers==5.0.0 {OTHERS}",
    fixed="peft 0.18.0",
    cell="gpt2_tiny-single+lora+nodrop-cpu_x1",
    neighbours=(f"transformers==4.54.1 {OTHERS}", f"transformers==4.57.6 {OTHERS}"),
)
