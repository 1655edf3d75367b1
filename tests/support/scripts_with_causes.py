"""Small training scripts, each with one cause put in by one edit of a base, and some without: what stands out is known.

An edit replaces texts of its base. A line with the mark AT is the one to name.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from perfsuite.compare.standing_out import Symptom

AT = "  # here"

MLP = """
import time
import torch
from torch import nn
from torch.nn import functional as F

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 10))

    def forward(self, x):
        return self.layers(x)

def batches():
    while True:
        yield torch.randn(64, 256), torch.randint(0, 10, (64,))

torch.manual_seed(0)
model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
data, kept = batches(), []
for step in range(90):
    x, y = next(data)
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
"""
LOADER = MLP.replace(
    "data, kept = batches(), []",
    """
class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 64 * 90

    def __getitem__(self, i):
        return torch.full((256,), i / 1000), i % 10

data, kept = iter(torch.utils.data.DataLoader(Rows(), batch_size=64)), []""",
)
LANGUAGE = """
import torch
from torch import nn
from torch.nn import functional as F

class Block(nn.Module):
    def __init__(self, width, heads=4):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 512), nn.GELU(), nn.Linear(512, width))

    def forward(self, x):
        b, s, w = x.shape
        q, k, v = (one.view(b, s, self.heads, -1).transpose(1, 2) for one in self.qkv(self.norm(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, s, w))
        return x + self.mlp(x)

class Language(nn.Module):
    def __init__(self, vocabulary=128, width=128):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.Sequential(Block(width), Block(width))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, ids):
        return self.head(self.blocks(self.embed(ids)))

torch.manual_seed(0)
vocabulary, length = 128, 128
model = Language(vocabulary)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
for step in range(60):
    ids = torch.randint(0, vocabulary, (4, length))
    following = F.pad(ids[:, 1:], (0, 1), value=-100)
    logits = model(ids)
    loss = F.cross_entropy(logits.view(-1, vocabulary), following.view(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
DDP = MLP.replace(
    "model = Net()", "torch.distributed.init_process_group('gloo')\nmodel = nn.parallel.DistributedDataParallel(Net())"
)
TRAINER = """
import time
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 400

    def __getitem__(self, i):
        ids = torch.full((64,), i % 100)
        return {"input_ids": ids, "labels": ids}

class Keeps(TrainerCallback):
    kept = []
    def on_step_end(self, args, state, control, **more):
        pass

config = LlamaConfig(vocab_size=256, hidden_size=128, intermediate_size=256, num_hidden_layers=2,
                     num_attention_heads=4, num_key_value_heads=4)
model = LlamaForCausalLM(config)
arguments = TrainingArguments(output_dir="out", max_steps=60, per_device_train_batch_size=4, report_to=[],
                              save_strategy="no", logging_steps=500, use_cpu=True, disable_tqdm=True)
Trainer(model, arguments, train_dataset=Rows(), eval_dataset=torch.utils.data.Subset(Rows(), range(40)),
        callbacks=[Keeps()]).train()
"""
ACCELERATE = LOADER.replace(
    "for step in range(90):",
    "from accelerate import Accelerator\naccelerator = Accelerator(cpu=True)\n"
    "model, optimizer = accelerator.prepare(model, optimizer)\nfor step in range(90):",
).replace("loss.backward()", "accelerator.backward(loss)")
LIGHTNING = (
    LOADER[: LOADER.index("torch.manual_seed")]
    + LOADER[LOADER.index("class Rows") : LOADER.index("data, kept")]
    + """
import lightning

class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net, self.kept = Net(), []

    def training_step(self, batch, number):
        x, y = batch
        return F.cross_entropy(self.net(x), y)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)

lightning.Trainer(max_steps=80, accelerator="cpu", logger=False, enable_checkpointing=False,
                  enable_progress_bar=False).fit(Module(), torch.utils.data.DataLoader(Rows(), batch_size=64))
"""
)
BASES = {
    "mlp": MLP, "loader": LOADER, "language": LANGUAGE, "ddp": DDP, "trainer": TRAINER, "accelerate": ACCELERATE,
    "lightning": LIGHTNING,
}  # fmt: skip
END = "    optimizer.step()\n"
FORWARD = "    loss = F.cross_entropy(model(x), y)\n"
ATTENTION = "        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)\n"
STEP_END = "        pass\n"
EVALUATES = """
    if {when}:
        model.eval()
        with torch.no_grad():
            for _ in range(4):
                F.cross_entropy(model(torch.randn(256, 256)), torch.zeros(256, dtype=torch.long))  # here
        model.train()
"""
OWN_OPTIMIZER = """
class Own(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(list(parameters), {})

    @torch.no_grad()
    def step(self):
        for one in self.param_groups[0]["params"]:
            one.add_(one.grad, alpha=-1e-3)  # here

"""
SMALL_LAYERS = "nn.Sequential(*[nn.Linear(16, 16) for _ in range({})], nn.Linear(16, 10))"


@dataclass(frozen=True)
class CausedScript:
    """``edits`` make it of its base. Without a ``symptom`` nothing stands out. Its ranks start with torchrun."""

    base: str
    symptom: Symptom | None
    edits: Mapping[str, str]

    @property
    def text(self) -> str:
        """The script."""
        text = BASES[self.base]
        for old, new in self.edits.items():
            assert old in text, f"{self.base} has no {old!r}"
            text = text.replace(old, new)
        return text

    @property
    def ranks(self) -> int:
        """How many it has."""
        return 2 if self.base == "ddp" else 1

    @property
    def line(self) -> str:
        """``train.py:14``, the one to name; empty if any may be."""
        marked = [number for number, line in enumerate(self.text.splitlines(), 1) if line.endswith(AT)]
        return f"train.py:{marked[0]}" if marked else ""


def after(text: str) -> dict[str, str]:
    """An edit that puts a line behind the optimizer's step."""
    return {END: f"{END}    {text}\n"}


def scripts() -> dict[str, CausedScript]:
    """Each by its name."""
    s = Symptom
    rows = "        return torch.full((256,), i / 1000), i % 10\n"
    tiny = {
        "256, 512), nn.GELU(), nn.Linear(512, 10)": "16, 10)",
        "torch.randn(64, 256)": "torch.randn(8, 16)",
        "(64,)": "(8,)",
    }
    deep = {"nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 10))": SMALL_LAYERS.format(60)}
    deep |= {"torch.randn(64, 256)": "torch.randn(8, 16)", "(64,)": "(8,)"}
    reduce = "    for one in model.parameters():\n        torch.distributed.all_reduce(one.grad)  # here\n"
    found: dict[str, tuple[str, Symptom | None, dict[str, str]]] = {
        "generator_sleeps": ("mlp", s.DATA, {"        yield": "        time.sleep(0.01)  # here\n        yield"}),
        "rows_sleep": ("loader", s.DATA, {rows: f"        time.sleep(0.0004)  # here\n{rows}"}),
        "rows_compute": ("loader", s.DATA, {rows: f"        [j * j for j in range(20_000)]  # here\n{rows}"}),
        "get_batch": (
            "mlp",
            s.DATA,
            {
                "def batches": "def get_batch():\n    rows = torch.randn(20_000, 256).sort(0).values  # here\n"
                "    return rows[:64], torch.zeros(64, dtype=torch.long)\n\ndef batches",
                "next(data)": "get_batch()",
            },
        ),
        "loader_in_trainer": ("trainer", s.DATA, {"        ids =": "        time.sleep(0.02)  # here\n        ids ="}),
        "rows_sleep_accelerate": ("accelerate", s.DATA, {rows: f"        time.sleep(0.0004)  # here\n{rows}"}),
        "keeps_losses": ("mlp", s.KEPT_TENSORS, after("kept.append(loss)")),
        "keeps_tensors": ("mlp", s.KEPT_TENSORS, after("kept.append(torch.zeros(9000))  # here")),
        "replaces_by_larger": ("mlp", s.KEPT_TENSORS, after("kept[:] = [torch.cat([*kept, torch.zeros(4, 256)])]")),
        "keeps_outputs": (
            "language",
            s.KEPT_TENSORS,
            {"for step in": "kept = []\nfor step in", **after("kept.append(logits.detach())")},
        ),
        "callback_keeps": (
            "trainer",
            s.KEPT_TENSORS,
            {STEP_END: "        self.kept.append(torch.ones(999))  # here\n"},
        ),
        "ddp_keeps": ("ddp", s.KEPT_TENSORS, after("kept.append(x * 2)  # here")),
        "accelerate_keeps": ("accelerate", s.KEPT_TENSORS, after("kept.append(x + 1)  # here")),
        "keeps_bytes": ("mlp", s.KEPT_HOST, after("kept.append(bytes(150_000))  # here")),
        "keeps_files": ("mlp", s.OPEN_FILES, after("kept.append(open('/dev/null'))  # here")),
        "keeps_objects": ("mlp", s.KEPT_OBJECTS, after("kept.append({step: [step, {}]})  # here")),
        "compiles_again": (
            "mlp",
            s.RECOMPILES,
            {
                "data, kept =": "run = torch.compile(lambda x, n: model(x) * n, backend='eager', dynamic=False)\n"
                "data, kept =",
                "model(x), y": "run(x, float(step % 7)), y",
            },
        ),
        "compiles_each_size": (
            "mlp",
            s.RECOMPILES,
            {
                "model = Net()": "model = torch.compile(Net(), backend='aot_eager', dynamic=False)",
                "        yield torch.randn(64, 256), torch.randint(0, 10, (64,))": "        n = 8 + step * 5\n"
                "        yield torch.randn(n, 256), torch.randint(0, 10, (n,))",
            },
        ),
        "breaks_graphs": (
            "mlp",
            s.GRAPH_BREAKS,
            {
                "        return self.layers(x)": "        torch._dynamo.graph_break()\n        return self.layers(x)",
                "model = Net()": "model = torch.compile(Net(), backend='eager')",
            },
        ),
        "asks_in_the_forward": (  # torch compiles each module by itself then
            "language",
            s.READS,
            {
                "        return self.head(self.blocks(self.embed(ids)))": "        x = self.embed(ids)\n"
                "        for block in self.blocks:\n            x = block(x)\n"
                "            if x.isnan().any():  # here\n                raise ValueError\n"
                "        return self.head(x)",
                "model = Language(vocabulary)": "model = torch.compile(Language(vocabulary), backend='eager')",
            },
        ),
        "saves_each": ("mlp", s.SAVES, after("torch.save([model.state_dict()] * 9, 'x.pt')  # here")),
        "saves_third": (
            "mlp",
            s.SAVES,
            after("step % 3 or torch.save([model.state_dict(), [0] * 99_999], 'x.pt')  # here"),
        ),
        "evaluates_each": ("mlp", s.EVALUATES, after(EVALUATES.format(when=True))),
        "evaluates_third": ("mlp", s.EVALUATES, after(EVALUATES.format(when="step % 3 == 0"))),
        "trainer_evaluates": (
            "trainer",
            s.EVALUATES,
            {'save_strategy="no"': 'save_strategy="no", eval_strategy="steps", eval_steps=2'},
        ),
        "one_by_one": ("mlp", s.LOOPS, deep | {"lr=1e-3": "lr=1e-3, foreach=False"}),
        "own_optimizer": (
            "mlp",
            s.LOOPS,
            deep
            | {
                "torch.manual_seed": f"{OWN_OPTIMIZER}torch.manual_seed",
                "torch.optim.AdamW(model.parameters(), lr=1e-3)": "Own(model.parameters())",
            },
        ),
        "row_by_row": (
            "mlp",
            s.HOST,
            {
                FORWARD: "    rows = zip(x.split(1), y.split(1))\n"
                "    loss = sum(F.cross_entropy(model(a), b) for a, b in rows)  # here\n"
            },
        ),
        "cell_by_cell": (
            "mlp",
            s.HOST,
            {
                "        return self.layers(x)": "        h = torch.zeros(64, 256)\n        for i in range(200):\n"
                "            h = torch.tanh(h * 0.5 + x)  # here\n        return self.layers(h)"
            },
        ),
        "many_small_layers": (
            "mlp",
            s.HOST,
            tiny | {"nn.Linear(16, 10))": SMALL_LAYERS.format(400)[14:], "lr=1e-3": "lr=1e-3, fused=True"},
        ),
        "reads_loss": ("mlp", s.READS, after("kept[:] = [loss.item()]  # here")),
        "reads_norms": (
            "mlp",
            s.READS,
            {END: f"    norm = sum(float(p.grad.norm()) for p in model.parameters())  # here\n{END}"},
        ),
        "asks_loss": (
            "language",
            s.READS,
            {"    optimizer.zero_grad()": "    if loss > 99:  # here\n        break\n    optimizer.zero_grad()"},
        ),
        "accelerate_reads": ("accelerate", s.READS, after("accelerator.gather(loss).mean().item()  # here")),
        "prints": ("mlp", s.PRINTS, after("print('step', step)  # here")),
        "double": ("mlp", s.WIDE, {"model = Net()": "model = Net().double()", "model(x)": "model(x.double())"}),
        "widened_by_numbers": (
            "mlp",
            s.WIDE,
            {
                "torch.manual_seed(0)": "torch.manual_seed(0)\nscale = torch.ones(256, dtype=torch.float64)",
                "torch.randn(64, 256), torch.randint(0, 10, (64,))": "torch.ones(4096, 256), torch.zeros(4096).long()",
                "    optimizer.zero_grad()": "    x = (x * scale).float() + (x / scale).float()  # here\n"
                "    optimizer.zero_grad()",
            },
        ),
        "float_in_autocast": (
            "language",
            s.WIDE,
            {
                "logits = model(ids)": "with torch.autocast('cpu', torch.bfloat16):\n        logits = model(ids)",
                "        return x + self.mlp(x)": "        with torch.autocast('cpu', enabled=False):\n"
                "            return x + self.mlp(x.float())  # here",
            },
        ),
        "never_cleared": ("mlp", s.GRADIENTS_SUMMED, {"    optimizer.zero_grad()\n": ""}),
        "zeros": (
            "mlp",
            s.GRADIENTS_ZEROED,
            {"optimizer.zero_grad()": "optimizer.zero_grad(set_to_none=False)  # here"},
        ),
        "cleared_late": (
            "mlp",
            s.GRADIENTS_LATE,
            {
                "    optimizer.zero_grad()\n": "",
                "    loss.backward()": "    optimizer.zero_grad()\n    loss.backward()",
                "torch.optim.AdamW(model.parameters(), lr=1e-3)": "torch.optim.SGD(model.parameters(), lr=1e-3)",
                "nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 10)": "nn.Linear(256, 512), nn.ReLU(), "
                "nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)",
                "torch.randn(64, 256), torch.randint(0, 10, (64,))": "torch.randn(512, 256), torch.zeros(512).long()",
            },
        ),
        "one_slow_rank": (
            "ddp",
            s.SLOWEST,
            {"    loss.backward()": "    time.sleep(0.02 * torch.distributed.get_rank())\n    loss.backward()"},
        ),
        "sleeps_after": ("mlp", s.OUTSIDE, after("time.sleep(0.01)  # here")),
        "own_attention": (
            "language",
            s.SCORES,
            {ATTENTION: "        y = torch.softmax(q @ k.transpose(-2, -1) / w**0.5, -1) @ v  # here\n"},
        ),
        "eager_attention": (
            "trainer",
            s.SCORES,
            {"LlamaForCausalLM(config)": "LlamaForCausalLM._from_config(config, attn_implementation='eager')"},
        ),
        "large_vocabulary": ("language", s.LOGITS, {"vocabulary, length = 128": "vocabulary, length = 20_000"}),
        "uneven": ("language", s.UNEVEN, {"(4, length)": "(4, 16 + step * 37 % 200)"}),
        "own_messages": (
            "ddp",
            s.RANKS,
            {
                END: reduce + END,
                "nn.parallel.DistributedDataParallel(Net())": "Net()",
                "(256, 512)": "(256, 4096)",
                "(512, 10)": "(4096, 10)",
            },
        ),
        "anomaly_mode": (
            "mlp",
            s.DEBUGS,
            {"torch.manual_seed": "torch.autograd.set_detect_anomaly(True)\ntorch.manual_seed"},
        ),
        "more_threads": ("mlp", s.CROWDED, {"torch.manual_seed": "torch.set_num_threads(99)\ntorch.manual_seed"}),
        "recomputes": (
            "language",
            s.RECOMPUTES,
            {
                "import torch\n": "import torch, torch.utils.checkpoint\n",
                "        return self.head(self.blocks(self.embed(ids)))": "        x = self.embed(ids)\n"
                "        for block in self.blocks:\n"
                "            x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)\n"
                "        return self.head(x)",
            },
        ),
        "pads_to_a_length": (
            "trainer",
            s.PADDED,
            {
                "        return {": "        mask = (torch.arange(64) < 40).long()\n        return {",
                '"labels": ids}': '"labels": ids, "attention_mask": mask}',
            },
        ),
        "collects_garbage": (
            "mlp",
            s.OUTSIDE,
            {"import time\n": "import gc\n", **after("gc.collect()  # here")},
        ),
        "loss_row_by_row": (
            "mlp",
            s.HOST,
            {
                "torch.manual_seed(0)": "def pairwise(a, b):\n    rows = zip(a.split(1), b.split(1))\n"
                "    return sum((one - other).pow(2).sum() for one, other in rows)  # here\n\ntorch.manual_seed(0)",
                FORWARD: "    loss = pairwise(model(x), model(x + 1))\n",
                "torch.randn(64, 256), torch.randint(0, 10, (64,))": "torch.randn(200, 256), 0",
            },
        ),
        "quiet_mlp": ("mlp", None, {}),
        "quiet_mean_of_replicas": (
            "mlp",
            None,
            {
                "model = Net()": "model, replica = Net(), Net()",
                FORWARD: "    loss = F.cross_entropy(replica(x), y)\n",
                "    optimizer.zero_grad()\n": "    replica.zero_grad()\n",
                END: "    for one, other in zip(model.parameters(), replica.parameters()):\n"
                f"        one.grad = other.grad / 2\n{END}",
            },
        ),
        "quiet_sgd": (
            "mlp",
            None,
            {"AdamW(model.parameters(), lr=1e-3)": "SGD(model.parameters(), lr=0.1, momentum=0.9)"},
        ),
        "quiet_loader": ("loader", None, {}),
        "quiet_language": ("language", None, {}),
        "quiet_autocast": (
            "language",
            None,
            {"logits = model(ids)": "with torch.autocast('cpu', torch.bfloat16):\n        logits = model(ids)"},
        ),
        "quiet_ddp": ("ddp", None, {}),
        "quiet_trainer": ("trainer", None, {}),
        "quiet_accelerate": ("accelerate", None, {}),
        "quiet_compile": ("mlp", None, {"model = Net()": "model = torch.compile(Net(), backend='eager')"}),
        "quiet_turns": (
            "mlp",
            None,
            {
                "data, kept =": "other = nn.Linear(256, 256)\nsecond = torch.optim.SGD(other.parameters())\n"
                "data, kept =",
                END: f"{END}    second.zero_grad()\n    F.cross_entropy(model(other(x)), y).backward()\n"
                "    second.step()\n",
            },
        ),
        "quiet_accumulation": (
            "mlp",
            None,
            {FORWARD: FORWARD + "    (loss / 2).backward()\n    x, y = next(data)\n" + FORWARD},
        ),
        "lightning_sleeps": ("lightning", s.DATA, {rows: f"        time.sleep(0.0004)  # here\n{rows}"}),
        "lightning_keeps": (
            "lightning",
            s.KEPT_TENSORS,
            {"        x, y = batch": "        x, y = batch\n        self.kept.append(x + 1)  # here"},
        ),
        "quiet_lightning": ("lightning", None, {}),
    }
    return {name: CausedScript(*one) for name, one in found.items()}
