"""sentence-transformers' training of a small BERT, on random words.

    python benchmarks/regressions/sentence_embeddings.py MegaBatchMarginLoss --per_device_train_batch_size 64

First comes the loss, as sentence-transformers names it, then the arguments of its trainer. ListMLELoss trains a cross
encoder on lists of documents, MatryoshkaLoss distils the embeddings of a teacher, and BatchAllTripletLoss learns
labels. "+first" after a loss takes the embedding of the first token, of texts that are padded on the left.
"""

import random
import sys
from typing import Any

import sentence_transformers
import torch
import transformers
from datasets import Dataset
from sentence_transformers import losses, models
from sentence_transformers.cross_encoder import losses as of_pairs
from tokenizers import Tokenizer, pre_tokenizers, processors
from tokenizers import models as kinds

WORDS, ROWS, STEPS, WIDTH = 200, 1600, 30, 32
USUAL = ["--output_dir", "out", "--use_cpu", "True", "--bf16", "False", "--report_to", "none", "--save_strategy", "no"]
SHAPE = {
    "vocab_size": WORDS,
    "hidden_size": WIDTH,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}


def save_small(folder: str, kind: Any, **more: Any) -> None:
    """A model with random weights, and its tokenizer."""
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    words = {name: number for number, name in enumerate(names)} | {f"w{n}": n for n in range(len(names), WORDS)}
    tokenizer = Tokenizer(kinds.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=64, **special)
    fast.save_pretrained(folder)
    kind(transformers.BertConfig(**SHAPE, **more)).save_pretrained(folder)


def words(least: int, most: int) -> str:
    """A text of so many random words; a third of the texts are alike."""
    if random.random() < 0.3:
        return f"w{random.randrange(4, 40)} w5 w6 w7"
    return " ".join(f"w{random.randrange(4, WORDS)}" for _ in range(random.randint(least, most)))


def encoder(pooled: str) -> Any:
    """A model of embeddings."""
    save_small("small", transformers.BertModel)
    transformer = models.Transformer("small")
    pooling = models.Pooling(WIDTH)
    if pooled == "first":
        transformer.tokenizer.padding_side = "left"
        pooling = models.Pooling(WIDTH, pooling_mode="cls")
    return sentence_transformers.SentenceTransformer(modules=[transformer, pooling], device="cpu")


def loss_of(name: str, model: Any) -> Any:
    """The loss, with what its documentation says to give it."""
    if name == "MegaBatchMarginLoss":
        return losses.MegaBatchMarginLoss(model, mini_batch_size=8)
    if name == "MatryoshkaLoss":
        return losses.MatryoshkaLoss(model, losses.MSELoss(model), matryoshka_dims=[WIDTH, WIDTH // 2])
    return getattr(losses, name)(model)


def pairs(name: str) -> Dataset:
    """What the loss is trained on."""
    rows: list[dict[str, Any]] = []
    for _ in range(ROWS):
        if name == "ListMLELoss":
            count = random.randint(2, 8)
            documents, labels = [words(4, 12) for _ in range(count)], [random.random() for _ in range(count)]
            rows.append({"query": words(3, 5), "documents": documents, "labels": labels})
        elif name == "MatryoshkaLoss":
            rows.append({"sentence": words(4, 12), "label": [random.random() for _ in range(WIDTH)]})
        elif name == "BatchAllTripletLoss":
            rows.append({"sentence": words(4, 12), "label": len(rows) % 20})
        else:
            rows.append({"anchor": words(4, 12), "positive": words(4, 24)})
    return Dataset.from_list(rows)


def main(wanted: str, arguments: list[str]) -> None:
    """Train."""
    name, _, pooled = wanted.partition("+")
    transformers.set_seed(0)
    random.seed(0)
    torch.set_num_threads(1)
    cross = name == "ListMLELoss"
    kind = "CrossEncoder" if cross else "SentenceTransformer"
    if cross:
        save_small("small", transformers.BertForSequenceClassification, num_labels=1)
        model = sentence_transformers.CrossEncoder("small", num_labels=1, device="cpu")
        loss = of_pairs.ListMLELoss(model)
    else:
        model = encoder(pooled)
        loss = loss_of(name, model)
    rows = pairs(name)
    package = sentence_transformers.cross_encoder if cross else sentence_transformers
    parser = transformers.HfArgumentParser(getattr(package, f"{kind}TrainingArguments"))
    (config,) = parser.parse_args_into_dataclasses([*USUAL, "--max_steps", str(STEPS), *arguments])
    evaluated = rows.select(range(16)) if config.eval_strategy != "no" else None
    trainer = getattr(package, f"{kind}Trainer")
    trainer(model, args=config, train_dataset=rows, eval_dataset=evaluated, loss=loss).train()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
