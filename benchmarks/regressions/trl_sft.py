"""trl's supervised fine-tuning of a small Qwen3 on random words.

    python benchmarks/regressions/trl_sft.py experts+router --packing True --max_length 64

First comes what is trained, then trl's own arguments: "dense"; "wide", one that knows many words; "experts", a mixture
of experts; or "experts+router", one whose loss has the routers' part.
"""

import random
import sys
from typing import Any

import transformers
import trl
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers

WORDS, ROWS, STEPS = 128, 800, 30
SHAPE = {
    "vocab_size": WORDS,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 16,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "use_cache": False,
}
EXPERTS = {"moe_intermediate_size": 32, "num_experts": 4, "num_experts_per_tok": 2}
USUAL = ["--output_dir", "out", "--use_cpu", "True", "--bf16", "False", "--report_to", "none", "--save_strategy", "no"]


def build(trained: str) -> Any:
    """The model, with random weights."""
    if trained.startswith("experts"):
        router = {"output_router_logits": True, "router_aux_loss_coef": 1.0} if trained.endswith("+router") else {}
        return transformers.Qwen3MoeForCausalLM(transformers.Qwen3MoeConfig(**SHAPE, **EXPERTS, **router))
    words = {"vocab_size": 4096} if trained == "wide" else {}
    return transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**SHAPE | words))


def main(trained: str, arguments: list[str]) -> None:
    """Train."""
    transformers.set_seed(0)
    parser = transformers.HfArgumentParser(trl.SFTConfig)
    (config,) = parser.parse_args_into_dataclasses([*USUAL, "--max_steps", str(STEPS), *arguments])
    words = {"<pad>": 0, "<end>": 1} | {f"w{number}": number for number in range(2, WORDS)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<end>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<end>", bos_token="<end>", unk_token="<end>"
    )
    texts = [" ".join(f"w{random.randrange(2, WORDS)}" for _ in range(random.randint(8, 40))) for _ in range(ROWS)]
    rows = Dataset.from_dict({"text": texts})
    trl.SFTTrainer(build(trained), args=config, train_dataset=rows, processing_class=fast).train()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
