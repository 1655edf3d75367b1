"""A small model that is trained on texts, which a tokenizer makes tokens of in each step.

    python benchmarks/regressions/tokenized_text.py long

The argument is what is made tokens of:

    long     long texts without spaces, such as DNA or a hash, by a fast tokenizer
    bytes    short texts, by ByT5's tokenizer
"""

import random
import string
import sys
from collections.abc import Callable

import torch
import transformers
from tokenizers import Tokenizer, models, trainers

WORDS, STEPS, LENGTH, WIDTH = 400, 300, 20_000, 16


def long_texts() -> Callable[[], list[int]]:
    """The tokens of the next text."""
    tokenizer = Tokenizer(models.BPE(unk_token="?"))
    learner = trainers.BpeTrainer(vocab_size=WORDS // 2, special_tokens=["?"])
    tokenizer.train_from_iterator(["".join(random.choices("ACGT", k=2000))], learner)
    return lambda: list(
        tokenizer.encode("".join(random.choices("ACGT", k=LENGTH)) + random.choice(string.ascii_letters)).ids
    )


def short_texts() -> Callable[[], list[int]]:
    """The tokens of the next text."""
    tokenizer = transformers.ByT5Tokenizer()
    return lambda: list(tokenizer("".join(random.choices(string.ascii_lowercase + " ", k=400)))["input_ids"])


def main(kind: str) -> None:
    """Train to tell a token from the one before it."""
    random.seed(0)
    torch.manual_seed(0)
    next_text = long_texts() if kind == "long" else short_texts()
    model = torch.nn.Sequential(torch.nn.Embedding(WORDS, WIDTH), torch.nn.Linear(WIDTH, WORDS))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(STEPS):
        tokens = torch.tensor(next_text())[:256]
        torch.nn.functional.cross_entropy(model(tokens[:-1]), tokens[1:]).backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main(sys.argv[1])
