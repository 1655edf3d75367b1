"""GRPO of a tiny causal model by trl: two prompts a step, four completions of each, rewarded for even tokens.

A script as a user would write it: `perfsuite run -- python benchmarks/grpo.py`, or benchmarks/test_rollout_cells.py.
Nothing is downloaded. Every completion has the same length, so every step does the same work.
"""

import tempfile

import datasets
import tokenizers
import transformers
from trl import GRPOConfig, GRPOTrainer

WORDS, NEW_TOKENS = 256, 16


def even_tokens(completion_ids, **_):
    """The reward of each completion: its share of even tokens."""
    return [sum(token % 2 == 0 for token in completion) / len(completion) for completion in completion_ids]


def main():
    """Train."""
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({str(one): one for one in range(WORDS)}, unk_token="0"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    prompts = [" ".join(str(2 + (7 * row + 3 * place) % 254) for place in range(8 + row % 4)) for row in range(64)]
    config = transformers.LlamaConfig(
        vocab_size=WORDS, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4
    )
    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            transformers.LlamaForCausalLM(config),
            reward_funcs=even_tokens,
            args=GRPOConfig(
                output_dir=folder,
                per_device_train_batch_size=8,
                num_generations=4,
                max_completion_length=NEW_TOKENS,
                generation_kwargs={"min_new_tokens": NEW_TOKENS},
                gradient_checkpointing=False,
                max_steps=1000,
                use_cpu=True,
                bf16=False,
                report_to="none",
                save_strategy="no",
                disable_tqdm=True,
            ),
            train_dataset=datasets.Dataset.from_dict({"prompt": prompts}),
            processing_class=transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="0", eos_token="1"),
        )
        trainer.train()


if __name__ == "__main__":
    main()
