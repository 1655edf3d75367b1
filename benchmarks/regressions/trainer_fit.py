"""transformers' Trainer on a small model and random tokens.

    torchrun --nproc-per-node 2 benchmarks/regressions/trainer_fit.py llama --gradient_accumulation_steps 2

First comes the model: "llama", "t5" or "roformer". Then come the Trainer's own arguments.
"""

import sys
from typing import Any

import torch
import transformers

WORDS, ROWS, STEPS, LENGTH = 128, 4000, 30, 24
SHAPE = {
    "vocab_size": WORDS,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "pad_token_id": 0,
}
USUAL = ["--output_dir", "out", "--use_cpu", "True", "--bf16", "False", "--report_to", "none", "--save_strategy", "no"]


def build(name: str) -> Any:
    """The model, with random weights and without dropout."""
    if name == "t5":
        shape = {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4, "dropout_rate": 0.0}
        config = transformers.T5Config(vocab_size=WORDS, decoder_start_token_id=0, **shape)
        return transformers.T5ForConditionalGeneration(config)
    if name == "roformer":
        still = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        return transformers.RoFormerForCausalLM(transformers.RoFormerConfig(**SHAPE, **still, is_decoder=True))
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SHAPE))


def rows() -> list[dict[str, Any]]:
    """Tokens, of which a part has labels: as many as the row's number says."""
    chance = torch.Generator().manual_seed(1)
    made = []
    for number in range(ROWS):
        tokens = torch.randint(1, WORDS, (LENGTH,), generator=chance)
        labels = tokens.clone()
        labels[: number % (LENGTH - 4)] = -100
        made.append({"input_ids": tokens, "labels": labels, "attention_mask": torch.ones(LENGTH, dtype=torch.long)})
    return made


def main(name: str, arguments: list[str]) -> None:
    """Train."""
    transformers.set_seed(0)
    parser = transformers.HfArgumentParser(transformers.TrainingArguments)
    (config,) = parser.parse_args_into_dataclasses([*USUAL, "--max_steps", str(STEPS), *arguments])
    model, data = build(name), rows()
    transformers.Trainer(model, config, train_dataset=data, eval_dataset=data[:64]).train()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
