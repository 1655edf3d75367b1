"""Scripts that perfsuite was not made for, as a stranger gives them to ``perfsuite run``: each is measured, or refused
in one sentence with exit status 1. No process of it stays.
"""

from types import SimpleNamespace

import psutil
import pytest
import small_scripts

from perfsuite.cli.main import main

START = f"import os, signal, subprocess, sys, threading\n{small_scripts.START}"
LOOP = "\nfor _ in range(60): step()\n"
SPAWNS = """
import torch, torch.distributed as dist, torch.multiprocessing as mp
def train(rank):
    dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/meeting", rank=rank, world_size=2)
    model = nn.parallel.DistributedDataParallel(nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(60):
        optimizer.zero_grad(); model(torch.randn(4, 8)).mean().backward(); optimizer.step()
if __name__ == "__main__":
    mp.spawn(train, nprocs=2)
"""
DAEMON = """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execlp("sleep", "sleep", "300")
    os._exit(0)
"""
EVALUATES = """
for at in range(60):
    step()
    if at % 4 == 3:
        model.eval()
        with torch.no_grad(): model(torch.randn(4, 8))
        model.train()
"""
DIFFERENTIATES = """
for _ in range(60):
    x = torch.randn(4, 8, requires_grad=True)
    (slope,) = torch.autograd.grad(model(x).pow(2).sum(), x, create_graph=True)
    optimizer.zero_grad(); slope.pow(2).mean().backward(); optimizer.step()
"""
IN_BACKWARD = """
optimizers = {one: torch.optim.SGD([one], lr=0.1) for one in model.parameters()}
def hook(parameter): optimizers[parameter].step(); optimizers[parameter].zero_grad()
for one in model.parameters(): one.register_post_accumulate_grad_hook(hook)
for _ in range(60): model(torch.randn(4, 8)).pow(2).mean().backward()
"""
TRANSFORMS = """
from torch.func import functional_call, grad, vmap
for _ in range(60):
    weights = {name: one.detach() for name, one in model.named_parameters()}
    slope = grad(lambda weights, row: functional_call(model, weights, (row,)).pow(2).mean())
    slopes = vmap(slope, in_dims=(None, 0))(weights, torch.randn(4, 8))
    for name, one in model.named_parameters(): one.grad = slopes[name].mean(0)
    optimizer.step()
"""
SPARSE = """
model = nn.Embedding(99, 8, sparse=True)
optimizer = torch.optim.SparseAdam(model.parameters(), lr=0.1)
for _ in range(60):
    optimizer.zero_grad(); model(torch.randint(0, 99, (4,))).pow(2).mean().backward(); optimizer.step()
"""
IN_8_BITS = """
from torchao.optim import AdamW8bit
model = nn.Linear(64, 64)
optimizer = AdamW8bit(model.parameters())
with torch.compiler.set_stance("force_eager"):
    for _ in range(60): optimizer.zero_grad(); model(torch.randn(4, 64)).pow(2).mean().backward(); optimizer.step()
"""
GATHERS_FLOAT8 = """
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torchao.float8 import Float8LinearConfig, convert_to_float8_training, precompute_float8_dynamic_scale_for_fsdp
dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/meeting", rank=0, world_size=1)
model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64))
convert_to_float8_training(model, config=Float8LinearConfig(enable_fsdp_float8_all_gather=True, emulate=True))
optimizer = torch.optim.AdamW(fully_shard(model).parameters())
for _ in range(60):
    optimizer.zero_grad(); model(torch.randn(4, 64)).pow(2).mean().backward(); optimizer.step()
    precompute_float8_dynamic_scale_for_fsdp(model)
"""
MEASURED = {
    "has states in 8 bits": START + IN_8_BITS,
    "gathers weights in float8": START + GATHERS_FLOAT8,
    "steps in its backward": START + IN_BACKWARD,
    "transforms functions": START + TRANSFORMS,
    "has sparse gradients": START + SPARSE,
    "differentiates its inputs": START + DIFFERENTIATES,
    "catches everything": START + "\nfor _ in range(999):\n    try: step()\n    except BaseException: pass",
    "spawns its ranks": START + SPAWNS,
    "forks a daemon": START + DAEMON + LOOP,
    "goes elsewhere": START + "\nos.chdir('/')" + LOOP,
    "has no variables": "import os\nos.environ.clear()\n" + START + LOOP,
    "has no variables later": START + "\nos.environ.clear()" + LOOP,
    "handles signals": START + "\nfor one in (15, 2, 10, 1): signal.signal(one, signal.SIG_IGN)" + LOOP,
    "evaluates": START + EVALUATES,
    "prints much": START + "\nfor _ in range(100): print('x' * 999_999)" + LOOP,
    "trains in a thread": START + f"\ndef train():\n    {LOOP.strip()}\nthread = threading.Thread(target=train)\n"
    "thread.start()\nthread.join()",
    "closes its output": START + "\nos.close(1); os.close(2); sys.stdout = sys.stderr = None" + LOOP,
    "reads its own file": START + "\nassert 'AdamW' in open(__file__).read()" + LOOP,
    "removes its folder": START + "\nimport shutil; shutil.rmtree(os.getcwd())" + LOOP,
    "ends in finally": START + "\ntry:\n    for _ in range(60): step()\nfinally: input('why')",
}
REFUSED = {
    "never steps": (START + "\nfor _ in range(9): model(torch.randn(4, 8))", "made a step of a torch.optim.Optimizer"),
    "few steps": (START + "\nfor _ in range(9): step()", "ended after 9 iterations, but 3 timed steps need 16"),
    "raises in step 3": (
        START + "\nstep(); step()\nraise ValueError('bad batch')",
        f"ValueError in step 3 at train.py:{START.count(chr(10)) + 3}: bad batch",
    ),
    "os._exit": (START + "\nfor _ in range(7): step()\nos._exit(3)", "ended with status 3 after 7 iterations"),
    "nan": (START + "\nfor n in range(60): step(float('nan') if n > 7 else 1.0)", "The loss is nan"),
    "reads stdin": (
        START + "\ninput()",
        "EOFError: EOF when reading a line. Nobody can answer it: give what it asks for",
    ),
    "refuses its arguments": (
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('data')\nparser.parse_args()",
        "step: train.py: error: the following arguments are required: data",
    ),
    "goes into the background": (
        "import os, sys\nif os.fork():\n    sys.exit()\nos.setsid()\n" + START + LOOP,
        "goes on in the background. Let it train in the foreground",
    ),
    "has no torch": ("print('hello')", "no process of it was seen to import torch"),
    "has a syntax error": (START + "\ndef", "ended with status 1 before its first optimizer step"),
    "kills itself": (
        START + "\nfor _ in range(7): step()\nos.kill(os.getpid(), 9)",
        "ended by SIGKILL after 7 iterations",
    ),
    "recurses": (START + "\ndef more(): more()\nstep()\nmore()", "RecursionError in step"),
    "exits in step 3": (START + "\nstep(); step()\nsys.exit('enough')", "ended after 2 iterations"),
}

AT_NIGHT = (
    *("goes elsewhere", "handles signals", "evaluates", "reads its own file", "removes its folder", "ends in finally"),
    *("kills itself", "recurses", "exits in step 3", "spawns its ranks", "has no variables"),
    *("transforms functions", "has sparse gradients", "has states in 8 bits"),
)


def run(folder, monkeypatch, *words):
    """The exit status of perfsuite run. What it has started is gone."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PERFSUITE_TEST", folder.name)  # all of the script's processes inherit it
    options = ["--steps", "3", "--launches", "1", "--timeout", "24"]

    status = main(["run", *options, "--", *words])

    assert started_by(folder.name) == []
    return status


def started_by(name):
    """The processes with that variable."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("PERFSUITE_TEST") == name:
                found.append(process.cmdline())
        except psutil.Error:  # another user's, or it has ended
            continue
    return found


def parameters(scripts):
    """pytest's, of which some are run at night alone."""
    given = {name: values if isinstance(values, tuple) else (values,) for name, values in scripts.items()}
    slow = {name: [pytest.mark.slow] for name in AT_NIGHT}
    return [pytest.param(*values, id=name, marks=slow.get(name, [])) for name, values in given.items()]


@pytest.mark.parametrize("text", parameters(MEASURED))
def test_a_strange_script_is_measured(tmp_path, monkeypatch, capsys, text):
    """It is the user's, and trains."""
    (tmp_path / "train.py").write_text(text)

    assert run(tmp_path, monkeypatch, "python", "train.py") == 0, capsys.readouterr().out
    assert "at the peak" in capsys.readouterr().out


def test_a_full_disk_is_said(tmp_path, monkeypatch, capsys):
    """A script then ends without a word: its output has no place either."""
    (tmp_path / "train.py").write_text("import os\nos._exit(1)")
    monkeypatch.setattr("perfsuite.launch.script_ends.shutil.disk_usage", lambda folder: SimpleNamespace(free=4096))

    assert run(tmp_path, monkeypatch, "python", "train.py") == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "optimizer step. The disk of its temporary files is full: make room in " in said


@pytest.mark.parametrize(("text", "said"), parameters(REFUSED))
def test_a_bad_script_is_refused(tmp_path, monkeypatch, capsys, text, said):
    """With the reason in the first line. Then follow the last lines of the command, as a rank server has none of it."""
    (tmp_path / "train.py").write_text(text)

    assert run(tmp_path, monkeypatch, "python", "train.py") == 1
    first, *others = capsys.readouterr().out.splitlines()
    assert said in first
    assert "the last lines of the rank server:" not in others


@pytest.mark.parametrize(
    "words", [("-m", "nets.train"), pytest.param(("nets/train_by_path.py",), marks=pytest.mark.slow)]
)
def test_a_package_with_relative_paths_is_measured(tmp_path, monkeypatch, capsys, words):
    """Its imports and its files are found from where the user stands."""
    package = tmp_path / "nets"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "step.py").write_text(START)
    (tmp_path / "size.txt").write_text("60")
    body = "\nfor _ in range(int(open('size.txt').read())): step()"
    (package / "train.py").write_text("from .step import step" + body)
    (package / "train_by_path.py").write_text("from step import step" + body)

    assert run(tmp_path, monkeypatch, "python", *words) == 0, capsys.readouterr().out
