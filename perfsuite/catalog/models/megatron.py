"""The GPT models of Megatron-LM's scaling paper, 1.7 billion to one trillion parameters, and GPT-3 175B.

Dimensions: arXiv 2104.04473, table 1 (2048 tokens, a vocabulary of 51,200); the micro-batches, which the table lacks,
are those of examples/sc21/run_table_1.sh in NVIDIA/Megatron-LM. GPT-3: arXiv 2005.14165, table 2.1; its alternating
layers of sparse attention are dense here, as they are wherever its speed is compared.
"""

from typing import Any

from perfsuite.catalog.definitions import Model, Workload
from perfsuite.catalog.models.gpt2 import gpt


def _gpt(name: str, parameters: int, micro_batch: int = 1, **overrides: Any) -> Model:
    config: dict[str, Any] = {
        "source": "arXiv 2104.04473, table 1",
        "vocab_size": 51200,
        "n_positions": 2048,
        # gelu_new is the same function as a chain of operators; Megatron fuses it, and so does this one
        "activation_function": "gelu_pytorch_tanh",
    } | overrides
    workload = Workload(micro_batch=micro_batch, sequence_length=2048)
    return gpt(name, parameters=parameters, workload=workload, family="megatron", **config)


MODELS = (
    _gpt("gpt_1b7", 1_652_230_656, 16, n_embd=2304, n_layer=24, n_head=24),
    _gpt("gpt_3b6", 3_562_168_320, 16, n_embd=3072, n_layer=30, n_head=32),
    _gpt("gpt_7b5", 7_467_786_240, 16, n_embd=4096, n_layer=36, n_head=32),
    _gpt("gpt_18b", 18_449_756_160, 8, n_embd=6144, n_layer=40, n_head=48),
    _gpt("gpt_39b", 39_096_041_472, 4, n_embd=8192, n_layer=48, n_head=64),
    _gpt("gpt_76b", 76_050_739_200, 2, n_embd=10240, n_layer=60, n_head=80),
    _gpt("gpt_145b", 145_622_261_760, 2, n_embd=12288, n_layer=80, n_head=96),
    _gpt("gpt_310b", 310_130_540_544, 1, n_embd=16384, n_layer=96, n_head=128),
    _gpt("gpt_530b", 529_600_819_200, 1, n_embd=20480, n_layer=105, n_head=128),
    _gpt("gpt_1t", 1_008_038_758_400, 1, n_embd=25600, n_layer=128, n_head=160),
    _gpt(
        "gpt3_175b",
        174_604_259_328,
        source="arXiv 2005.14165, table 2.1",
        vocab_size=50257,
        n_embd=12288,
        n_layer=96,
        n_head=96,
    ),
)
