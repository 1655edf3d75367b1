"""A small model that is trained on long texts, which a fast tokenizer makes tokens of in each step.

python benchmarks/regressions/tokenized_text.py
"""

import random
import string

import torch
from tokenizers import Tokenizer, models, trainers

WORDS, STEPS, LENGTH, WIDTH = 200, 300, 20_000, 16


def main() -> None:
    """Train to tell a token from the one before it. The texts are long and without spaces, such as DNA or a hash."""
    random.seed(0)
    torch.manual_seed(0)
    tokenizer = Tokenizer(models.BPE(unk_token="?"))
    learner = trainers.BpeTrainer(vocab_size=WORDS, special_tokens=["?"])
    tokenizer.train_from_iterator(["".join(random.choices("ACGT", k=2000))], learner)
    model = torch.nn.Sequential(torch.nn.Embedding(WORDS, WIDTH), torch.nn.Linear(WIDTH, WORDS))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(STEPS):
        text = "".join(random.choices("ACGT", k=LENGTH)) + random.choice(string.ascii_letters)
        tokens = torch.tensor(tokenizer.encode(text).ids)[:256]
        torch.nn.functional.cross_entropy(model(tokens[:-1]), tokens[1:]).backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
