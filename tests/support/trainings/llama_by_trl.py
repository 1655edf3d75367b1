"""Supervised fine-tuning of a Llama by trl, on ready token ids."""

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed
from trl import SFTConfig, SFTTrainer

set_seed(0)
vocabulary = {"<pad>": 0, "<eos>": 1, "<unk>": 2} | {f"w{n}": n + 3 for n in range(93)}
inner = Tokenizer(models.WordLevel(vocabulary, "<unk>"))
inner.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=inner, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", model_max_length=64
)
config = LlamaConfig(
    vocab_size=96,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=2,
    pad_token_id=0,
    eos_token_id=1,
)
model = LlamaForCausalLM(config)
generator = torch.Generator().manual_seed(1)
rows = [" ".join(f"w{n}" for n in torch.randint(93, (8 + i % 12,), generator=generator).tolist()) for i in range(96)]
args = SFTConfig(
    output_dir="out",
    per_device_train_batch_size=4,
    num_train_epochs=3,
    learning_rate=1e-3,
    logging_steps=10,
    max_length=32,
    report_to=[],
    use_cpu=True,
    bf16=False,
    gradient_checkpointing=False,
    save_strategy="no",
)
trainer = SFTTrainer(model, args=args, train_dataset=Dataset.from_dict({"text": rows}), processing_class=tokenizer)
trainer.train()
