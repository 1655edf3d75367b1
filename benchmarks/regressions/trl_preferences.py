"""trl's training on preferences of a small Llama, on random words.

    python benchmarks/regressions/trl_preferences.py DPO --gradient_accumulation_steps 4

First comes the trainer, as trl names it, then trl's own arguments: DPO, CPO, ORPO, KTO, BCO, Reward, GRPO or RLOO.
"""

import random
import sys
from typing import Any

import transformers
import trl
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers

WORDS, ROWS, STEPS = 128, 400, 30
USUAL = ["--output_dir", "out", "--use_cpu", "True", "--bf16", "False", "--report_to", "none", "--save_strategy", "no"]


def build(trainer: str) -> Any:
    """The model, with random weights and without dropout."""
    kind = transformers.LlamaForSequenceClassification if trainer == "Reward" else transformers.LlamaForCausalLM
    more = {"num_labels": 1} if trainer == "Reward" else {}
    return kind(
        transformers.LlamaConfig(
            vocab_size=WORDS,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            pad_token_id=0,
            eos_token_id=1,
            bos_token_id=2,
            **more,
        )
    )


def words(least: int, most: int) -> str:
    """A text of so many random words."""
    return " ".join(f"w{random.randrange(3, WORDS)}" for _ in range(random.randint(least, most)))


def row(trainer: str) -> dict[str, Any]:
    """A prompt with its answer, or with a better and a worse one."""
    prompt = {"prompt": words(4, 8)}
    if trainer in ("GRPO", "RLOO"):
        return prompt
    if trainer in ("KTO", "BCO"):
        return prompt | {"completion": f" {words(4, 16)}", "label": random.random() < 0.5}
    return prompt | {"chosen": f" {words(4, 16)}", "rejected": f" {words(4, 16)}"}


def reward(completions: list[str], **_: Any) -> list[float]:
    """Longer is better."""
    return [float(len(completion)) for completion in completions]


def main(trainer: str, arguments: list[str]) -> None:
    """Train."""
    transformers.set_seed(0)
    random.seed(0)
    parser = transformers.HfArgumentParser(getattr(trl, f"{trainer}Config"))
    (config,) = parser.parse_args_into_dataclasses([*USUAL, "--max_steps", str(STEPS), *arguments])
    known = {"<pad>": 0, "<end>": 1, "<begin>": 2} | {f"w{number}": number for number in range(3, WORDS)}
    tokenizer = Tokenizer(models.WordLevel(known, unk_token="<end>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<end>", bos_token="<begin>", unk_token="<end>"
    )
    rows = Dataset.from_list([row(trainer) for _ in range(ROWS)])
    more = {"reward_funcs": reward} if trainer in ("GRPO", "RLOO") else {}
    build(trainer).save_pretrained("small")  # from where trl takes the reference, too
    fast.save_pretrained("small")
    kind = transformers.AutoModelForSequenceClassification if trainer == "Reward" else transformers.AutoModelForCausalLM
    model = kind.from_pretrained("small")
    getattr(trl, f"{trainer}Trainer")(model, args=config, train_dataset=rows, processing_class=fast, **more).train()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
