"""Gradients of T5 that the Trainer accumulates over four micro-batches, by those of the same rows at once: 1 is right.

pip install torch accelerate transformers==5.0.0
python transformers_t5_trainer.py
"""

import tempfile

import torch
import transformers
from transformers import T5Config, T5ForConditionalGeneration, Trainer, TrainingArguments

PARTS = 4
generator = torch.Generator().manual_seed(0)
ROWS = [
    {name: torch.randint(1, 64, (16,), generator=generator) for name in ("input_ids", "labels")} for _ in range(PARTS)
]


def norm(rows: int, parts: int) -> float:
    """Of the gradient of one step."""
    torch.manual_seed(0)
    config = T5Config(d_model=32, d_kv=8, d_ff=64, num_layers=1, num_heads=4, vocab_size=64, dropout_rate=0.0)
    config.decoder_start_token_id = 0
    model = T5ForConditionalGeneration(config)
    with tempfile.TemporaryDirectory() as folder:
        options = TrainingArguments(
            folder,
            per_device_train_batch_size=rows,
            gradient_accumulation_steps=parts,
            max_steps=1,
            max_grad_norm=1e9,
            logging_steps=1,
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
        )
        trainer = Trainer(model=model, args=options, train_dataset=ROWS)
        trainer.train()
    return next(line["grad_norm"] for line in trainer.state.log_history if "grad_norm" in line)


print(f"transformers {transformers.__version__}: {norm(1, PARTS) / norm(PARTS, 1):.3f}")
