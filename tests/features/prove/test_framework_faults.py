"""``perfsuite prove`` on small trainings by eight ways to train: faults as people make them are caught and named.

The trainings are in tests/support/trainings. Each fault is an edit of one. Reports of the same faults in programs of
other people are in docs/data/prove/reported.csv.
"""

import csv
from pathlib import Path

import pytest
from proven_scripts import TORCHRUN, edited, prove

TRAININGS = Path(__file__).parents[2] / "support" / "trainings"
REPORTED = Path(__file__).parents[3] / "docs" / "data" / "prove" / "reported.csv"
PYTHON = ("python",)
BY_HAND = ("gpt_by_hand", PYTHON, "--batch-size 4 --accumulate 2")
DDP = ("gpt2_by_ddp", TORCHRUN, "--per_device_train_batch_size 4 --gradient_accumulation_steps 1")
FSDP = ("llama_by_fsdp", TORCHRUN, "--batch-size 4")
ZERO = ("gpt2_by_zero", TORCHRUN, "--train_micro_batch_size_per_gpu 4 --gradient_accumulation_steps 2")
TRAINER = (
    "gpt2_by_trainer",
    PYTHON,
    "--output_dir out --per_device_train_batch_size 4 --gradient_accumulation_steps 2 --use_cpu --report_to none "
    "--save_steps 10 --eval_strategy steps --eval_steps 10",
)
ACCELERATE = ("images_by_accelerate", TORCHRUN, "--batch_size 8 --gradient_accumulation_steps 2")
LIGHTNING = ("gpt2_by_lightning", PYTHON, "--batch_size 4 --accumulate_grad_batches 2")
TRL = ("llama_by_trl", PYTHON, "")
ALL = [BY_HAND, DDP, FSDP, ZERO, TRAINER, ACCELERATE, LIGHTNING, TRL]
SEQUENCE = """torch.optim.lr_scheduler.SequentialLR(
    optimizer,
    [
        torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=5),
        torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS),
    ],
    [5],
)"""
BACK = "(loss / options.accumulate).backward()"
AUTOCAST = 'with torch.autocast("cpu", torch.bfloat16, enabled=options.bf16):'
WARM = """@torch.compiler.assume_constant_result
def temperature():
    return 1.0 + 0.05 * calls[0]
calls = [0]
class Block"""
GROUPS = """torch.optim.AdamW(
    [
        {'params': [one for name, one in model.named_parameters() if 'ln' not in name and 'bias' not in name]},
        {'params': [one for name, one in model.named_parameters() if 'norm' in name or 'bias' in name]},
    ],
    1e-3,
)"""
OWN_LOSS = """class OwnTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        outputs = model(**inputs)
        loss = outputs.loss / self.args.gradient_accumulation_steps
        return (loss, outputs) if return_outputs else loss
trainer = OwnTrainer("""
DROPPING = """        row = self.rows[index]
        return row[torch.from_numpy(numpy.random.rand(len(row)) > 0.1)]"""
OWN_ROWS = """rank = dist.get_rank()
mine = torch.randperm(128, generator=torch.Generator().manual_seed(rank))[rank::world]
data = torch.utils.data.Subset(data, mine.tolist())
sampler = torch.utils.data.RandomSampler(range(64))
"""
LOCAL_CLIP = """        shards = [one.grad.to_local() for one in model.parameters()]
        norm = torch.stack([one.norm() for one in shards]).norm()
        torch.nn.utils.clip_grads_with_norm_(model.parameters(), 0.3, norm)"""
PACKED = """places = (torch.arange(24) % 12).expand_as(ids)
        loss = model(input_ids=ids, labels=ids, attention_mask=torch.ones_like(ids), position_ids=places).loss"""
ADDED = """embedding = torch.nn.Embedding(100, 32)
embedding.weight.data[:96] = model.transformer.wte.weight.data
model.transformer.wte = embedding
trainer = Trainer"""
SAMPLED = """        if index == 5:
            self.model.eval()
            with torch.no_grad():
                self.model(input_ids=ids)
        loss ="""
PREPARED = "model, optimizer, train, test, scheduler = accelerator.prepare(model, optimizer, train, test, scheduler)"
SHIFTED = """    labels = torch.nn.functional.pad(labels[:, 1:], (0, 1), value=-100)
    return {"input_ids": ids,"""
NO_BIASES = "[one for name, one in model.named_parameters() if 'bias' not in name]"
LATE = """optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
model.resize_token_embeddings(104)
trainer = SFTTrainer(model, optimizers=(optimizer, None),"""
FAULTS = {  # by name: the training, its relation, what is said, and the edits
    "the mask shows the next token": (BY_HAND, "causal", "begins in blocks.0", (".tril()", ".tril(1)")),
    "the average follows each micro-batch": (
        BY_HAND,
        "schedule",
        "is updated 3 times for one update",
        (BACK, f"{BACK}\n        average.update_parameters(model)"),
    ),
    "a cosine of epochs steps by batch": (
        BY_HAND,
        "schedule",
        "CosineAnnealingLR falls for 4 steps and then rises again",
        (SEQUENCE, "torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4)"),
    ),
    "layers in a list": (
        BY_HAND,
        "trained",
        "is called in the forward and was not registered",
        ("nn.ModuleList(Block() for _ in range(3))", "[Block() for _ in range(3)]"),
    ),
    "recomputation draws again": (
        BY_HAND,
        "checkpointing",
        "begins in blocks.0",
        ("        return x + self.mlp", "        return x + random.uniform(0.5, 1.5) * self.mlp"),
    ),
    "the average is not loaded": (
        BY_HAND,
        "resume",
        "a copy of the model is not restored",
        ('    average.load_state_dict(saved["average"])\n', ""),
    ),
    "a constant that is none": (
        BY_HAND,
        "compiled",
        "most in blocks.",
        ("class Block", WARM),
        ("scores = q @", "scores = temperature() * q @"),
        (AUTOCAST, f"calls[0] += 1\n        {AUTOCAST}"),
    ),
    "a function of dropout": (
        BY_HAND,
        "modes",
        "drops values at random in dropout()",
        (", nn.Dropout(0.1))", ")"),
        ("return x + self.mlp(self.ln_2(x))", "return x + functional.dropout(self.mlp(self.ln_2(x)), 0.1)"),
    ),
    "rows in the order of a set": (
        BY_HAND,
        "seeds",
        "step 1 reads other rows in each launch",
        ("loader =", "data = data[[int(text) for text in {str(number) for number in range(160)}]]\nloader ="),
    ),
    "clipped before it is unscaled": (
        BY_HAND,
        "precision",
        "65,536 times as large",
        ("torch.bfloat16, enabled", "torch.float16, enabled"),
        (BACK, "scaler.scale(loss / options.accumulate).backward()"),
        ("step = 0\nif", 'scaler = torch.amp.GradScaler("cpu")\nstep = 0\nif'),
        ("        optimizer.step()\n", "        scaler.step(optimizer)\n        scaler.update()\n"),
    ),
    "frozen inputs of reentrant recomputation": (
        BY_HAND,
        "trained",
        "has blocks.0.ln_1.weight and 35 more",
        ("use_reentrant=False", "use_reentrant=True"),
        ("self.head.weight = self.tokens.weight", "self.tokens.requires_grad_(False)\n        self.positions.eval()"),
        ("        self.ln_f =", "        self.positions.requires_grad_(False)\n        self.ln_f ="),
    ),
    "a mean of the ranks' means": (
        DDP,
        "ranks",
        "gpt2_by_ddp.py|train.py",
        ('reduction="sum"', 'reduction="mean"'),
        ("(loss * world / count)", "(loss / accumulate)"),
    ),
    "a head after the wrapper": (
        DDP,
        "replicas",
        "averages the gradient of lm_head.weight in",
        ("optimizer =", "model.module.lm_head = torch.nn.Linear(32, 96, bias=False)\noptimizer ="),
    ),
    "gradients average one batch too early": (
        DDP,
        "replicas",
        "under no_sync()",
        ("with contextlib.nullcontext() if is_last", "with contextlib.nullcontext() if number % accumulate == 0"),
    ),
    "workers with one seed": (
        DDP,
        "data",
        "draw the same random numbers of numpy",
        ("num_workers=2", "num_workers=2, worker_init_fn=lambda worker: numpy.random.seed(0)"),
        ("        return self.rows[index]", DROPPING),
    ),
    "padding is trained": (
        DDP,
        "causal",
        "labels are of tokens that attention_mask hides",
        ("ids.masked_fill(mask == 0, -100)", "ids.clone()"),
    ),
    "each shard clips by its own norm": (
        FSDP,
        "engines",
        "Is each clipped by the norm of all?",
        ("        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)", LOCAL_CLIP),
    ),
    "an average is taken for a sum": (
        FSDP,
        "ranks",
        "gradients are 2 times as large as on one rank",
        ("        loss.backward()", "        (loss * world).backward()"),
    ),
    "neighbours see each other": (
        FSDP,
        "causal",
        "a document changes what the model gives for its neighbour",
        ("loss = model(input_ids=ids, labels=ids).loss", PACKED),
    ),
    "parts by other orders": (
        FSDP,
        "data",
        "more than one rank reads",
        ("sampler = DistributedSampler(data, seed=0)\n", OWN_ROWS),
        ("    sampler.set_epoch(epoch)\n", ""),
    ),
    "the engine's division once more": (
        ZERO,
        "accumulation",
        "2 times too small with accumulation",
        ("engine.backward(loss)", "engine.backward(loss / accumulate)"),
    ),
    "the engine's scheduler once more": (
        ZERO,
        "schedule",
        "LambdaLR ma",
        ("        engine.step()\n", "        engine.step()\n        scheduler.step()\n"),
    ),
    "weights that the engine has already copied": (
        ZERO,
        "trained",
        "DeepSpeed's float32 copy of it",
        ("sampler = Dist", "model.lm_head.weight.data.mul_(0.5)\nsampler = Dist"),
    ),
    "moments that are not loaded": (
        ZERO,
        "resume",
        "optimizer group 0, tensor 0",
        ("(options.resume_from)", "(options.resume_from, load_optimizer_states=False)"),
    ),
    "labels are shifted twice": (
        TRAINER,
        "causal",
        "shifted by two",
        ('    return {"input_ids": ids,', SHIFTED),
    ),
    "tokens are added by hand": (TRAINER, "trained", "ties lm_head.weight", ("trainer = Trainer", ADDED)),
    "the count of labels is ignored": (TRAINER, "accumulation", "unequally", ("trainer = Trainer(", OWN_LOSS)),
    "biases are in no group": (
        TRAINER,
        "trained",
        "does not have transformer.h.0.ln_1.bias",
        ("    model=model,", f"    model=model,\n    optimizers=(torch.optim.AdamW({NO_BIASES}, 1e-3), None),"),
    ),
    "a scheduler that is not prepared": (
        ACCELERATE,
        "schedule",
        "OneCycleLR ma",
        (PREPARED, "model, optimizer, train, test = accelerator.prepare(model, optimizer, train, test)"),
    ),
    "norms by a wrong name": (
        ACCELERATE,
        "trained",
        "does not have ln.weight",
        ("torch.optim.AdamW(model.parameters(), 1e-3)", GROUPS),
    ),
    "a sample leaves evaluation mode": (
        LIGHTNING,
        "modes",
        "in evaluation mode since step 3",
        ("        loss =", SAMPLED),
    ),
    "gradients are never cleared": (
        LIGHTNING,
        "trained",
        "has that of the step before",
        ("        return loss", "        self.manual_backward(loss)\n        self.optimizers().step()"),
        ("        super().__init__()\n", "        super().__init__()\n        self.automatic_optimization = False\n"),
        ("    accumulate_grad_batches=options.accumulate_grad_batches,\n    gradient_clip_val=1.0,\n", ""),
    ),
    "a schedule of updates steps by epoch": (
        LIGHTNING,
        "schedule",
        "OneCycleLR is made for 56 steps",
        (
            'return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}',
            "return [optimizer], [scheduler]",
        ),
    ),
    "embeddings are resized late": (
        TRL,
        "trained",
        "was it made before the model was replaced",
        ("trainer = SFTTrainer(model,", LATE),
    ),
}
MORE = {
    "a constant that is none": ("--compile",),
    "clipped before it is unscaled": ("--bf16",),
    "gradients average one batch too early": ("--gradient_accumulation_steps", "2"),
}


def proven(folder, training, only, edits=(), more=()):
    """The status and the text of one training."""
    name, launcher, words = training
    if name == "gpt2_by_lightning":
        pytest.importorskip("lightning")
    return prove(
        folder, edited((TRAININGS / f"{name}.py").read_text(), *edits), only, launcher, [*words.split(), *more]
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_a_framework_is_named(tmp_path, name):
    """With its module, parameter or line."""
    training, relation, said, *edits = FAULTS[name]
    status, text = proven(tmp_path, training, relation, edits, MORE.get(name, ()))

    assert (status, "BROKEN" in text, any(one in text for one in said.split("|"))) == (1, True, True), text


@pytest.mark.slow
@pytest.mark.parametrize(
    "training", [BY_HAND, DDP, FSDP, ZERO, TRAINER, ACCELERATE, LIGHTNING, TRL], ids=lambda one: one[0]
)
def test_a_right_training_breaks_nothing(tmp_path, training):
    """Of the relations that need one launch."""
    status, text = proven(tmp_path, training, "trained,replicas,schedule,modes,data,causal")

    assert (status, "BROKEN" in text) == (0, False), text


@pytest.mark.slow
@pytest.mark.parametrize("training", [TRL, LIGHTNING, (*ZERO[:2], "")], ids=[TRL[0], LIGHTNING[0], ZERO[0]])
def test_a_right_accumulation_holds(tmp_path, training):
    """Also if no option says it: then the library is told."""
    status, text = proven(tmp_path, training, "accumulation")

    assert (status, "one global batch in two splits" in text) == (0, True), text


@pytest.mark.slow
@pytest.mark.parametrize("training", [BY_HAND, ZERO, TRAINER, ACCELERATE, LIGHTNING], ids=lambda one: one[0])
def test_a_right_resume_holds(tmp_path, training):
    """Also beside the files of an earlier training, which must not be taken for those of this one."""
    (tmp_path / "out").mkdir()
    for name in ("latest", "last.pt"):
        (tmp_path / "out" / name).write_text("global_step3")
    status, text = proven(tmp_path, training, "resume")

    assert (status, "begins step" in text) == (0, True), text


def test_each_reported_fault_is_tried():
    """One report is about one fault."""
    with REPORTED.open(newline="") as file:
        rows = list(csv.DictReader(file))
    links = [row["report"] for row in rows]

    assert len({*links}) == len(links) >= 30
    assert {row["fault"]: row["relation"] for row in rows}.items() <= {
        (name, fault[1]) for name, fault in FAULTS.items()
    }
