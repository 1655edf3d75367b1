"""GPT-2 by transformers' Trainer, with its own arguments."""

from dataclasses import dataclass

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, HfArgumentParser, Trainer, TrainingArguments, set_seed


@dataclass
class ModelArguments:
    layers: int = 2


class Texts(Dataset):
    def __init__(self, count):
        generator = torch.Generator().manual_seed(count)
        self.rows = [torch.randint(1, 96, (10 + n % 14,), generator=generator) for n in range(count)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return {"input_ids": self.rows[index]}


def collate(features):
    ids = torch.nn.utils.rnn.pad_sequence([one["input_ids"] for one in features], batch_first=True)
    mask = (ids != 0).long()
    labels = ids.masked_fill(mask == 0, -100)
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


parser = HfArgumentParser((TrainingArguments, ModelArguments))
args, model_args = parser.parse_args_into_dataclasses()
set_seed(args.seed)
config = GPT2Config(vocab_size=96, n_positions=32, n_embd=32, n_layer=model_args.layers, n_head=2, pad_token_id=0)
model = GPT2LMHeadModel(config)
trainer = Trainer(
    model=model,
    args=args,
    train_dataset=Texts(96),
    eval_dataset=Texts(16),
    data_collator=collate,
)
trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
