"""``perfsuite prove``: a fault that is put into a right script breaks its relation. The right one breaks none."""

import pytest
from proven_scripts import TORCHRUN, always_one, edited, prove

from perfsuite.cli.main import main
from perfsuite.features.prove.relation import Judged, Proven, RelationOutcome, Remark, relations
from perfsuite.features.prove.relations_text import render_proven

LOOP = """
import os, torch
from torch import nn
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(32, 16)
        self.body = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 16))
        self.head = nn.Linear(16, 32)
    def forward(self, x):
        return self.head(self.body(self.embed(x)))
model = Net()
data = torch.utils.data.TensorDataset(torch.randint(32, (64, 8)), torch.randint(32, (64, 8)))
loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / 100)
def evaluate():
    model.eval()
    with torch.no_grad():
        for x, y in loader:
            model(x)
    model.train()
for epoch in range(3):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
    evaluate()
"""
RANKS = """
import os, torch
import torch.distributed as dist
from torch import nn
dist.init_process_group("gloo")
torch.manual_seed(0)
net = nn.Sequential(nn.Embedding(32, 16), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 32))
model = nn.parallel.DistributedDataParallel(net)
data = torch.utils.data.TensorDataset(torch.randint(32, (64, 8)), torch.randint(32, (64, 8)))
sampler = torch.utils.data.DistributedSampler(data)
loader = torch.utils.data.DataLoader(data, batch_size=4, sampler=sampler)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten()).backward()
        optimizer.step()
"""
STREAM = """
class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(data)
loader = torch.utils.data.DataLoader(Stream(), batch_size=8, num_workers=2)
"""
STEP = "        scheduler.step()\n"
SHUFFLE = "batch_size=8, shuffle=True"
BACK = "        loss.backward()\n"
RANK_MOVES = "        optimizer.step()\n        net[1].bias.data.add_(dist.get_rank())\n"
SCALED = """scale = globals().setdefault("scale", nn.Parameter(torch.ones(())))
        len(optimizer.param_groups) < 2 and optimizer.add_param_group({"params": [scale]})
        nn.functional.cross_entropy(scale * model(x).flatten(0, 1)"""
OWN_SEED = "shuffle=True, generator=torch.Generator().manual_seed(dist.get_rank())"
UPDATE = "        optimizer.zero_grad()\n        loss.backward()\n        optimizer.step()\n        scheduler.step()\n"
OF_TWO = """        (loss / 2).backward()
        if (step := step + 1) % 2 == 0:
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
"""
COSINE = ("lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / 100)\n", "lr_scheduler.{}\nstep = 0\n")
HIDES = """class Hiding(torch.utils.data.Dataset):
    def __init__(self):
        self.rows, self.labels = data.tensors
    def __len__(self):
        return 64
    def __getitem__(self, row):
        x = self.rows[row]
        x[torch.rand(8) < 0.5] = 0
        return x, self.labels[row]
loader = torch.utils.data.DataLoader(Hiding(), batch_size=8, shuffle=True)
"""
SWAPS = """average = {name: one.clone() for name, one in model.state_dict().items()}
def evaluate():
    [average[name].lerp_(one, 0.5) for name, one in model.state_dict().items()]
    model.load_state_dict(average)
"""
SUMS = """net
for one in [one for one in net.parameters() if one.dim() > 1]:
    one.register_post_accumulate_grad_hook(lambda one: dist.all_reduce(one.grad))"""
OWN_WEIGHTS = """net
for one in net.parameters():
    one.data.add_(dist.get_rank() / 10)
    one.register_post_accumulate_grad_hook(lambda one: dist.all_reduce(one.grad))"""
PARTS = (  # a loss that is a method, and an optimizer of a part
    "AdamW(model.parameters(), lr=1e-2)\n",
    "AdamW([*model.embed.parameters(), *model.head.parameters()], lr=1e-2)\n"
    "calls, inner = Net.forward, model\nmodel = type('Loss', (), {'__call__': lambda _, x: calls(inner, x), "
    "'eval': inner.eval, 'train': inner.train})()\n",
)
CLIP = "        nn.utils.clip_grad_norm_(model.parameters(), 0.01)\n"
OTHERS = "        globals().setdefault('others', torch.optim.SGD(model.parameters(), 1e-3)).step()\n"
FREEZES = "    model.eval(); model.head.requires_grad_(False)\n"
ANEW = "torch.utils.data.DataLoader(data, batch_size=8, shuffle=True, generator=torch.Generator().manual_seed(0))"
OWN_ORDER = """class Order(torch.utils.data.Sampler):
    def __iter__(self):
        return iter(torch.randperm(64, generator=torch.Generator().manual_seed(0)).tolist())
    def set_epoch(self, epoch):
        pass
loader = torch.utils.data.DataLoader(data, batch_size=8, sampler=Order())
"""
OWN_NOISE = """import numpy
class Noisy(torch.utils.data.TensorDataset):
    rng = None
    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        return torch.tensor(self.rng.randint(32, size=8)), y
data = Noisy(*data.tensors)
data.rng = numpy.random.RandomState(0)
loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True, num_workers=2)
"""
WARMS = "__import__('transformers').get_linear_schedule_with_warmup(optimizer, 50, 24)"
slow = pytest.mark.slow
FAULTS = [  # a relation, the edit, and what is said
    ("trained", ("AdamW(model.parameters()", "AdamW(model.body.parameters()"), "does not have embed.weight and 2 more"),
    ("trained", ("self.embed(x)))", "self.embed(x)).detach())"), "no gradient reaches embed.weight and 4 more: head"),
    (
        "trained",
        ("        optimizer.zero_grad()\n", ""),
        "embed.weight and 6 more in step 2 has that of the step before",
    ),
    ("trained", (BACK, f"{BACK}        optimizer.zero_grad()\n"), "is zero_grad() called between backward()"),
    ("trained", ("scheduler = ", "model = __import__('copy').deepcopy(model)\nscheduler = "), "7 parameters that no"),
    ("trained", (STEP, CLIP + STEP), "clipped after the optimizer has used them"),
    ("trained", (BACK, CLIP + BACK), "no parameter has a gradient where gradients are clipped"),
    ("trained", PARTS, "does not have body.0.weight and 3 more"),
    ("trained", (STEP, f"{OTHERS}{STEP}"), "two optimizers have embed.weight and 6 more"),
    ("schedule", (STEP, STEP * 2), "LambdaLR makes 2 steps for each update"),
    ("schedule", (STEP, ""), "LambdaLR made no step in all of 24 updates"),
    ("schedule", ("1 - step / 100", "max(0, 1 - step / 6)"), "is 0 in 18 updates from update 7 on"),
    (
        "schedule",
        (STEP, f"{STEP}        optimizer.param_groups[0]['lr'] = 0.01\n"),
        "LambdaLR has set 24 learning rates, and all updates had the same one",
    ),
    ("schedule", ("def evaluate", "scheduler.step()\ndef evaluate"), "made 1 steps before the first update"),
    ("modes", ("    model.train()\n", ""), "body.2 and 7 more in evaluation mode since step 9"),
    ("modes", ("    model.eval()\n", ""), "the evaluation after step 8 runs in training mode: body.2"),
    ("modes", ("            model(x)\n", "            model(x); model.head.bias.add_(1)\n"), "changes head.bias"),
    ("modes", ("    model.eval()\n", FREEZES), "the evaluation after step 8 freezes head.bias and 1 more"),
    ("modes", ("model = Net()", "model = Net().eval()"), "Net trains in evaluation mode from the first step on"),
    (
        "modes",
        ("    model.eval()\n", "    model.eval(); torch.manual_seed(0)\n"),
        "16 sets a seed, so Net draws",
    ),
    (
        "modes",
        ("        loss = nn", "        torch.manual_seed(1)\n        loss = nn"),
        "Net draws the random numbers of an",
    ),
    ("modes", ("def evaluate():\n", SWAPS), "puts other weights into embed.weight and 6 more, and training goes on"),
    ("data", ("optimizer = ", f"{HIDES}optimizer = "), "reading a sample of Hiding changes what it stores"),
    (
        "data",
        ("    for x, y in loader:\n        loss", "    torch.manual_seed(0)\n    for x, y in loader:\n        loss"),
        "in the order",
    ),
    (
        "data",
        ("    for x, y in loader:\n        loss", f"    for x, y in {ANEW}:\n        loss"),
        "in the order of the",
    ),
    ("trained", ("optimizer = ", "model.body.requires_grad = False\noptimizer = "), "body has requires_grad = False"),
    ("trained", ("lr=1e-2", "lr=0.0"), "was 0 in all of 24 updates"),
    (
        "schedule",
        ("torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / 100)", WARMS),
        "warms up for 50 steps",
    ),
    ("data", (SHUFFLE, f"{SHUFFLE}, num_workers=2, worker_init_fn=lambda _: torch.manual_seed(0)"), "workers draw the"),
    ("data", ("optimizer = ", f"{OWN_ORDER}optimizer = "), "epoch 2 reads TensorDataset in the order of the epoch"),
    ("data", ("optimizer = ", f"{OWN_NOISE}optimizer = "), "same random numbers from Noisy.rng"),
    ("data", ("optimizer = ", f"{STREAM}optimizer = "), "each of 2 workers reads every sample of Stream"),
    ("seeds", ("optimizer = ", "model.head.weight.data.add_(os.getpid())\noptimizer = "), "but head.weight begins"),
    ("seeds", (SHUFFLE, f"{SHUFFLE}, generator=torch.Generator().manual_seed(os.getpid())"), "step 1 reads other rows"),
    ("seeds", ("loss = nn", "loss = (1 + os.getpid() / 1e6) * nn"), "step 1 has another loss in each launch"),
]
OF_RANKS = [
    ("replicas", ("cross_entropy(model", "cross_entropy(net"), "ranks train apart since step 1"),
    ("replicas", ("nn.parallel.DistributedDataParallel(net)", "net"), "ranks train apart since step 1"),
    (
        "replicas",
        ("nn.parallel.DistributedDataParallel(net)", OWN_WEIGHTS),
        "between ranks before the first step",
    ),
    ("replicas", ("nn.functional.cross_entropy(model(x).flatten(0, 1)", SCALED), "param_groups[1]['params'][0]"),
    ("replicas", ("        optimizer.step()\n", RANK_MOVES), "1.bias differs between ranks since step"),
    ("data", ("sampler=sampler", "shuffle=True"), "all 2 ranks read the same samples of TensorDataset"),
    ("data", ("    sampler.set_epoch(epoch)\n", ""), "epoch 2 reads TensorDataset in the order of the epoch before"),
    ("data", ("sampler=sampler", OWN_SEED), "more than one rank reads 64 samples"),
    ("replicas", ("nn.parallel.DistributedDataParallel(net)", SUMS), "gradient of 1.bias and 1 more in step 1"),
]
OF_PARTS = [  # with two micro-batches for each update
    (
        "schedule",
        "CosineAnnealingLR(optimizer, 24)",
        "batch_size=8",
        "made for 24 steps, and training ends after 12",
    ),
    ("data", "ConstantLR(optimizer)", "batch_size=10", "step 4 adds up 3 micro-batches, and others 2"),
]


CHECKPOINTED = LOOP.replace(
    "return self.head(self.body(self.embed(x)))",
    "return self.head(torch.utils.checkpoint.checkpoint(self.body, self.embed(x), use_reentrant=False))",
).replace("import os, torch", "import os, torch, torch.utils.checkpoint")
STATE = """class Drift(nn.Module):
    calls = 0
    def forward(self, x):
        self.calls += 1
        return (x * self.calls).tanh()
model = Net(); model.body.append(Drift())
"""
OF_CHECKPOINTS = [
    ("checkpointing", ("use_reentrant=False", "use_reentrant=False, preserve_rng_state=False")),
    ("checkpointing", ("model = Net()\n", STATE)),
    ("checkpointing", ("nn.Sequential(nn.Linear(16, 16), ", "nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(8), ")),
    ("checkpointing", ("self.embed(x), use_reentrant=False", "self.embed(x).detach(), use_reentrant=True")),
]


@pytest.mark.parametrize(("relation", "edit", "said"), always_one(FAULTS))
def test_a_fault_breaks_its_relation(tmp_path, relation, edit, said):
    """With the parameter, module or class that it is in."""
    status, text = prove(tmp_path, edited(LOOP, edit), relation)

    assert (status, "BROKEN" in text, said in text) == (1, True, True), text


@slow
@pytest.mark.parametrize(("relation", "scheduler", "batch", "said"), OF_PARTS)
def test_a_fault_of_micro_batches_breaks_its_relation(tmp_path, relation, scheduler, batch, said):
    """Two of them are added up for an update."""
    old, new = COSINE
    epoch = ("    evaluate()\n", "    evaluate(); step = 0\n")
    script = edited(LOOP, (UPDATE, OF_TWO), (old, new.format(scheduler)), ("batch_size=8", batch), epoch)
    status, text = prove(tmp_path, script, relation)

    assert (status, "BROKEN" in text, said in text) == (1, True, True), text


@pytest.mark.parametrize(("relation", "edit", "said"), always_one(OF_RANKS))
def test_a_fault_of_ranks_breaks_its_relation(tmp_path, relation, edit, said):
    """On two of them."""
    status, text = prove(tmp_path, edited(RANKS, edit), relation, TORCHRUN)

    assert (status, "BROKEN" in text, said in text) == (1, True, True), text


@pytest.mark.parametrize(
    ("relation", "edit"), [pytest.param(*one, marks=[slow] if at else []) for at, one in enumerate(OF_CHECKPOINTS)]
)
def test_a_fault_of_recomputation_breaks_its_relation(tmp_path, relation, edit):
    """The same loop keeps its activations in the other launch."""
    status, text = prove(tmp_path, edited(CHECKPOINTED, edit), relation)

    assert (status, "BROKEN     recomputation changes " in text) == (1, True), text


@slow
def test_a_right_recomputation_holds(tmp_path):
    """With dropout."""
    status, text = prove(tmp_path, CHECKPOINTED, "checkpointing")

    assert (status, "gradients with and without recomputation differ by 0 of" in text) == (0, True), text


def test_a_right_script_breaks_no_relation(tmp_path):
    """All of a loop on one rank, where replicas cannot be tried. In the end its layers are merged into others."""
    merged = LOOP + "model.body = nn.Linear(16, 16)\n"
    status, text = prove(tmp_path, merged, "trained,replicas,schedule,modes,data,seeds")

    assert (status, text.count(" holds "), "BROKEN" in text) == (0, 5, False), text
    assert "replicas  not tried  the script trains on one rank" in text


@slow
def test_a_right_script_on_two_ranks_breaks_no_relation(tmp_path):
    """Which makes no scheduler."""
    status, text = prove(tmp_path, RANKS, "trained,replicas,schedule,data,seeds", TORCHRUN)

    assert (status, text.count(" holds "), "BROKEN" in text) == (0, 4, False), text
    assert "makes no scheduler" in text


def test_an_unknown_relation_is_told(capsys):
    """With those that there are."""
    assert main(["prove", "--only=trianed", "--", "python", "train.py"]) == 2
    assert "No relation named 'trianed'. Did you mean 'trained'?" in capsys.readouterr().err


def test_every_sentence_can_be_said():
    """A remark has all fields that a sentence names."""
    by_name = {relation.name: relation for relation in relations()}
    for relation in by_name.values():
        for what in relation.says:
            remark = Remark(what=what, subject="head.weight", more=2, step=3, line="train.py:4")
            judged = Judged(relation=relation.name, outcome=RelationOutcome.BROKEN, remarks=[remark])
            text = render_proven(Proven(cell="train-script-cpu_x1", relations=[judged]), by_name)
            assert text.startswith("train-script-cpu_x1: 1 of 1 relation is broken")
            assert "train.py:4" in text
