"""LoRA fine-tuning of a tiny Llama on packed prompt/answer pairs, plain loop."""

import argparse
import math
import os

import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset
from transformers import LlamaConfig, LlamaForCausalLM

VOCAB, ROW = 64, 48
PAD, SEP, EOS = 0, 1, 2


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--batch-size", type=int, default=4, help="packed rows in a micro-batch")
    p.add_argument("--accumulate", type=int, default=2)
    p.add_argument("--steps", type=int, default=30)
    p.add_argument("--lr", type=float, default=1e-2)
    p.add_argument("--warmup", type=int, default=3)
    p.add_argument("--rank", type=int, default=8)
    p.add_argument("--lora-dropout", type=float, default=0.1)
    p.add_argument("--no-checkpointing", action="store_true")
    p.add_argument("--seed", type=int, default=5)
    p.add_argument("--eval-every", type=int, default=10)
    p.add_argument("--save", default="ck")
    p.add_argument("--save-every", type=int, default=15)
    p.add_argument("--resume", default=None)
    return p.parse_args()


def make_pairs(count, seed):
    """prompt: a few digits then SEP; answer: the digits moved to the upper alphabet, in order, then EOS."""
    g = torch.Generator().manual_seed(seed)
    pairs = []
    for _ in range(count):
        n = int(torch.randint(3, 9, (1,), generator=g))
        start = int(torch.randint(20, (1,), generator=g))
        digits = [(start + k) % 20 + 4 for k in range(n)]
        pairs.append(([*digits, SEP], [d + 30 for d in digits] + [EOS]))
    return pairs


class Packed(Dataset):
    """Greedy packing of pairs in rows of ROW tokens; `document` tells the pairs of a row apart (-1: padding)."""

    def __init__(self, pairs):
        self.rows, row = [], []
        for pair in pairs:
            if sum(len(p) + len(a) for p, a in row) + len(pair[0]) + len(pair[1]) > ROW:
                self.rows.append(row)
                row = []
            row.append(pair)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        ids, labels, positions, document = [], [], [], []
        for d, (prompt, answer) in enumerate(self.rows[i]):
            ids += prompt + answer
            labels += [-100] * len(prompt) + answer
            positions += range(len(prompt) + len(answer))
            document += [d] * (len(prompt) + len(answer))
        fill = ROW - len(ids)
        return (
            torch.tensor(ids + [PAD] * fill),
            torch.tensor(labels + [-100] * fill),
            torch.tensor(positions + [0] * fill),
            torch.tensor(document + [-1] * fill),
        )


def block_mask(document):
    same = document[:, :, None] == document[:, None, :]
    causal = torch.ones(ROW, ROW, dtype=torch.bool).tril()
    return (same & causal)[:, None]


def build_model(args):
    torch.manual_seed(args.seed)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=ROW,
        pad_token_id=PAD,
        bos_token_id=None,
        eos_token_id=EOS,
        tie_word_embeddings=False,
        attn_implementation="sdpa",
        initializer_range=0.1,
    )
    base = LlamaForCausalLM(config)
    base.config.use_cache = False
    lora = LoraConfig(
        r=args.rank,
        lora_alpha=2 * args.rank,
        lora_dropout=args.lora_dropout,
        bias="none",
        task_type="CAUSAL_LM",
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        modules_to_save=["lm_head"],
    )
    model = get_peft_model(base, lora)
    if not args.no_checkpointing:
        model.enable_input_require_grads()
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model


def answer_loss(model, batch):
    """Sum of the loss over answer tokens."""
    ids, labels, positions, document = batch
    logits = model(input_ids=ids, attention_mask=block_mask(document), position_ids=positions).logits
    shift = labels[:, 1:].flatten()
    return functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), shift, ignore_index=-100, reduction="sum")


def targets(batch):
    return int((batch[1][:, 1:] != -100).sum())


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    loss = sum(answer_loss(model, b).item() for b in loader) / sum(targets(b) for b in loader)
    model.train()
    return loss


def main():  # noqa: PLR0915  as people write it
    args = parse_args()
    model = build_model(args)
    train_set, eval_set = Packed(make_pairs(600, seed=1)), Packed(make_pairs(60, seed=2))
    order = torch.Generator()
    loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True, drop_last=True, generator=order)
    eval_loader = DataLoader(eval_set, batch_size=8, generator=torch.Generator())
    per_epoch = len(loader) // args.accumulate
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=args.lr, weight_decay=0.0)

    def factor(step):
        if step < args.warmup:
            return (step + 1) / (args.warmup + 1)
        return 0.5 * (1 + math.cos(math.pi * (step - args.warmup) / max(1, args.steps - args.warmup)))

    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)

    step = 0
    torch.manual_seed(args.seed + 1)
    if args.resume:
        state = torch.load(os.path.join(args.resume, "adapter.pt"), weights_only=False)
        set_peft_model_state_dict(model, state["adapter"])
        optimizer.load_state_dict(state["optimizer"])
        scheduler.load_state_dict(state["scheduler"])
        torch.set_rng_state(state["rng"])
        step = state["step"]

    model.train()
    while step < args.steps:
        epoch, done = divmod(step, per_epoch)
        order.manual_seed(args.seed * 1000 + epoch)
        micro = []
        for i, batch in enumerate(loader):
            if i < done * args.accumulate:
                continue
            micro.append(batch)
            if len(micro) < args.accumulate:
                continue
            count = sum(targets(b) for b in micro)
            total = 0.0
            for b in micro:
                loss = answer_loss(model, b) / count
                loss.backward()
                total += loss.item()
            micro = []
            torch.nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad(set_to_none=True)
            step += 1
            print(f"step {step} loss {total:.4f} lr {scheduler.get_last_lr()[0]:.6f}", flush=True)
            if step % args.eval_every == 0:
                print(f"step {step} eval {evaluate(model, eval_loader):.4f}", flush=True)
            if args.save and step % args.save_every == 0:
                folder = os.path.join(args.save, f"step{step}")
                os.makedirs(folder, exist_ok=True)
                torch.save(
                    {
                        "adapter": get_peft_model_state_dict(model),
                        "optimizer": optimizer.state_dict(),
                        "scheduler": scheduler.state_dict(),
                        "rng": torch.get_rng_state(),
                        "step": step,
                    },
                    os.path.join(folder, "adapter.pt"),
                )
            if step >= args.steps:
                break


if __name__ == "__main__":
    main()
