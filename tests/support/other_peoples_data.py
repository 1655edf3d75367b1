"""What scripts of others need to train without a network: a small model, a tokenizer, a few rows, random images.

``python other_peoples_data.py FOLDER`` makes all of it there.
"""

import json
import random
import sys
from collections.abc import Callable
from pathlib import Path

ROWS = 400
WORDS = ["quick", "brown", "fox", "jumps", "over", "lazy", "dog", "and", "then", "runs", "away", "home", "to", "see"]
TEMPLATE = "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\\n' }}{% endfor %}"
# The index has torchvision for CUDA alone, whose import fails beside a torch for CPUs.
VISION = {
    "__init__.py": "",
    "datasets.py": """
import torch

class MNIST(torch.utils.data.Dataset):
    def __init__(self, root, train=True, transform=None, download=False):
        chance = torch.Generator().manual_seed(1)
        self.images = torch.rand(4096 if train else 64, 1, 28, 28, generator=chance)
        self.labels = torch.randint(10, (len(self.images),), generator=chance).tolist()
        self.transform = transform

    def __len__(self):
        return len(self.images)

    def __getitem__(self, at):
        return self.transform(self.images[at]), self.labels[at]
""",
    "transforms.py": """
def ToTensor():
    return lambda image: image

def Normalize(mean, std):
    return lambda image: (image - mean[0]) / std[0]

def Compose(all):
    def compose(image):
        for one in all:
            image = one(image)
        return image
    return compose
""",
}


def text(words: int) -> str:
    """So many words by chance."""
    return " ".join(random.choice(WORDS) for _ in range(words))


def make_rows(folder: Path) -> None:
    """A data set of each kind that trl's scripts read, and names of three languages."""
    kinds: dict[str, Callable[[], object]] = {
        "texts": lambda: {"text": text(24)},
        "pairs": lambda: {"prompt": text(6), "chosen": text(12), "rejected": text(10)},
        "prompts": lambda: {"prompt": [{"role": "user", "content": text(8)}]},
    }
    for name, make in kinds.items():
        (folder / name).mkdir()
        (folder / name / "train.jsonl").write_text("".join(f"{json.dumps(make())}\n" for _ in range(ROWS)))
    (folder / "names").mkdir()
    for language in ("English", "French", "German"):
        names = ("".join(random.choices("abcdefghijklmnop", k=8)).title() for _ in range(1500))
        (folder / "names" / f"{language}.txt").write_text("\n".join(names))
    config = dict.fromkeys(
        ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"), "auto"
    )
    for stage in (2, 3):
        zero = {"stage": stage, "reduce_bucket_size": 100_000}  # else a bucket of 2 GB
        more = {"zero_optimization": zero, "zero_allow_untested_optimizer": True}
        (folder / f"zero{stage}.json").write_text(json.dumps({**config, **more}))


def make_models(folder: Path) -> None:
    """Models of two layers with random weights: GPT-2 as a language model and as a model of rewards, and a mixture of
    experts.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import (
        GPT2Config,
        GPT2ForSequenceClassification,
        GPT2LMHeadModel,
        PreTrainedTokenizerFast,
        Qwen3MoeConfig,
        Qwen3MoeForCausalLM,
        set_seed,
    )

    set_seed(0)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<pad>", "<end>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator([text(20) for _ in range(200)], trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<end>", bos_token="<end>", unk_token="<end>"
    )
    fast.chat_template = TEMPLATE
    shape = {"n_layer": 2, "n_head": 2, "n_embd": 64, "vocab_size": len(fast), "n_positions": 256, "pad_token_id": 0}
    ends = {"bos_token_id": 1, "eos_token_id": 1}
    GPT2LMHeadModel(GPT2Config(**shape, **ends)).save_pretrained(folder / "model")
    GPT2ForSequenceClassification(GPT2Config(**shape, **ends, num_labels=1)).save_pretrained(folder / "rewards")
    experts = {"moe_intermediate_size": 32, "num_experts": 4, "num_experts_per_tok": 2}
    wide = {"hidden_size": 64, "intermediate_size": 128, "head_dim": 32, "vocab_size": len(fast), "pad_token_id": 0}
    heads = {"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2}
    Qwen3MoeForCausalLM(Qwen3MoeConfig(**wide, **heads, **experts, **ends)).save_pretrained(folder / "experts")
    for name in ("model", "rewards", "experts"):
        fast.save_pretrained(folder / name)


def main(folder: Path) -> None:
    """All of it."""
    random.seed(0)
    make_rows(folder)
    make_models(folder)
    (folder / "vision" / "torchvision").mkdir(parents=True)
    for name, source in VISION.items():
        (folder / "vision" / "torchvision" / name).write_text(source)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
