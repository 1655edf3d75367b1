"""Training scripts as they are: each kind of loop is measured."""

import contextlib
import importlib.util
import json
import os
import shlex
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import gate_samples as samples
import msgspec
import pytest
from small_scripts import START

from perfsuite.catalog.cell import make_cell
from perfsuite.catalog.registry import Catalog
from perfsuite.catalog.scripts import ENGINE, name_of, script
from perfsuite.catalog.tuning import Rank
from perfsuite.environments.environments import HERE
from perfsuite.errors import UsageError
from perfsuite.launch import script_copy
from perfsuite.launch.scripts import ScriptServer
from perfsuite.launch.servers import ServerKind
from perfsuite.rank.flags import variables
from perfsuite.rank.script import read_files
from perfsuite.records.failure import Failure
from perfsuite.records.measurement import COMMAND
from perfsuite.records.packed import unpack
from perfsuite.run.environment_changes import changes_since
from perfsuite.run.measuring import Measuring
from perfsuite.run.pairs import Pairs
from perfsuite.run.question import Question
from perfsuite.run.runner import Runner, Settings
from perfsuite.run.sides import Side
from perfsuite.settings.options import FEWEST_LONG

DDP = """
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(60):
    loss = model(torch.randn(4, 8)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
ADVERSARIAL = """
import torch
from torch import nn
torch.manual_seed(0)
one, other = nn.Linear(8, 4), nn.Linear(4, 1)
critic, maker = torch.optim.Adam(other.parameters()), torch.optim.Adam(one.parameters())
for _ in range(60):
    critic.zero_grad(); other(one(torch.randn(4, 8)).detach()).mean().backward(); critic.step()
    maker.zero_grad(); (-other(one(torch.randn(4, 8))).mean()).backward(); maker.step()
"""
TORCHRUN = ("torchrun", "--nproc-per-node", "2", "train.py")
needs_memray = pytest.mark.skipif(importlib.util.find_spec("memray") is None, reason="memray names the lines")
SHORT = Settings(steps=3, warmup=1, start_timeout=60.0, step_timeout=20.0)


def measured(folder, text, command=("python", "train.py"), hardware="cpu_x1", settings=SHORT):
    """The measurement of a script."""
    (folder / "train.py").write_text(text)
    model = script("train", " ".join(command), folder)
    catalog = Catalog(extra_models=(model,))
    runner = Runner(catalog, settings)
    try:
        return runner.measure(make_cell("train", ENGINE, hardware, catalog))
    finally:
        runner.close()


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Two launches of a plain loop."""
    folder = tmp_path_factory.mktemp("plain")
    return [measured(folder, START + "for _ in range(60): step()") for _ in range(2)]


def test_a_plain_loop_is_measured(plain):
    """Its model has 8 x 8 weights and 8 biases, AdamW two tensors and a step for each."""
    readings = plain[0].readings

    assert plain[0].outcome == "fits", plain[0].failure
    assert readings["parameters_bytes"].value == 288
    assert readings["gradients_bytes"].value == 288
    assert readings["optimizer_state_bytes"].value == 2 * 288 + 2 * 4
    assert readings["model_flop"].value == 2 * 2 * 4 * 8 * 8  # forward, and the gradient of the weights
    assert len(readings["loss"].samples) == len(readings["step_time_seconds"].samples) + 3 + 1 + 3 + 2
    assert plain[0].engine["optimizers"] == "torch.optim.adamw.AdamW"


def test_its_counts_repeat(plain):
    """To the byte, in launches of their own."""
    first, second = ({name: (reading.value, reading.parts) for name, reading in one.readings.items()} for one in plain)
    exact = [metric.name for metric in Catalog().metrics("script") if metric.hold == "exact" and metric.name in first]

    assert len(exact) > 10
    assert {name: first[name] for name in exact} == {name: second[name] for name in exact}


@pytest.mark.parametrize(
    "clip", ["clip_grad_norm_(model.parameters(), 1e-3)", "clip_grad_value_(model.parameters(), 1e-3)"]
)
def test_the_gradient_norm_is_that_before_clipping(plain, tmp_path, clip):
    """Else a loss that is too large by a factor would leave it as it was."""
    clipped = START.replace("    optimizer.step()", f"    nn.utils.{clip}\n    optimizer.step()")
    done = measured(tmp_path, clipped + "for _ in range(60): step()")

    assert done.readings["gradient_norm"].samples[0] > 100 * 1e-3
    assert len(done.readings["gradient_norm"].samples) == len(plain[0].readings["gradient_norm"].samples)


@needs_memray
def test_a_long_run_names_the_lines_that_keep(tmp_path):
    """Of a script: a buffer and a file of every step, which begin after the short run."""
    keeps = """
import os
kept = []
for number in range(300):
    step()
    if number > 20:
        kept.append(bytearray(1024))
        kept.append(os.open(__file__, os.O_RDONLY))
"""
    text = START + keeps
    numbered = list(enumerate(text.split("\n"), 1))
    lines = {name: number for name in ("bytearray", "os.open(") for number, line in numbered if name in line}
    done = measured(tmp_path, text, settings=replace(SHORT, long=FEWEST_LONG))

    assert done.outcome == "fits", done.failure
    assert 1024 <= done.readings["kept_host_bytes"].value < 2048
    assert done.readings["kept_files"].value == 1
    assert f"train.py:{lines['bytearray']}" in " ".join(done.readings["kept_host_bytes"].suspects)
    assert f"train.py:{lines['os.open(']}" in " ".join(done.readings["kept_files"].suspects)


def test_two_ranks_are_measured(tmp_path):
    """By torchrun: one all-reduce of the gradients."""
    done = measured(tmp_path, DDP, TORCHRUN, "cpu_x2")

    assert done.outcome == "fits", done.failure
    assert done.readings["collectives"].ranks == [1, 1]
    assert done.readings["communication_bytes"].parts == {"all_reduce": 288}
    assert done.engine["wrappers"] == "DistributedDataParallel"


def test_two_optimizers_make_one_step(tmp_path):
    """Of one loop: both losses are summed, and both models are at its peak."""
    done = measured(tmp_path, ADVERSARIAL)

    assert done.outcome == "fits", done.failure
    assert done.engine["optimizers"].count("Adam") == 2
    assert done.readings["parameters_bytes"].value == 4 * (8 * 4 + 4 + 4 + 1)


def test_a_step_has_the_optimizer_that_steps_seldom(tmp_path):
    """Five steps of a critic, without the maker's gradients, and one of the maker, which are FLOPs of a step."""
    text = ADVERSARIAL.replace("range(60)", "range(100)").replace("    maker.zero", "    if _ % 5 == 4: maker.zero")
    critic, maker = 2 * 4 * (8 * 4 + 2 * 4), 2 * 4 * (2 * 8 * 4 + 3 * 4)

    readings = measured(tmp_path, text).readings

    assert readings["model_flop"].value == 5 * critic + maker
    assert readings["iterations"].value == 5


def test_an_optimizer_that_comes_late_is_told(tmp_path):
    """The step that was seen before is not the loop's."""
    text = """
for number in range(60):
    step()
    if number == 8:
        late = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))])
    if number > 8:
        late.step()
"""
    assert "An optimizer, SGD, has stepped for the first time" in measured(tmp_path, START + text).failure.message


def test_a_step_is_said_by_hand(tmp_path):
    """By a script with an optimizer of its own."""
    own = """
import perfsuite
for _ in range(60):
    loss = model(torch.randn(4, 8)).pow(2).mean()
    loss.backward()
    with torch.no_grad():
        for one in model.parameters():
            one -= 0.1 * one.grad
            one.grad = None
    perfsuite.step()
"""
    done = measured(tmp_path, START + own)

    assert done.outcome == "fits", done.failure
    assert done.engine["optimizers"] == ""


ROLLOUTS = """
import perfsuite
{first}
for _ in range(40):
    with torch.no_grad(): model(torch.randn(4, 8))
    for _ in range({updates}): step()
    perfsuite.step()
"""
BEFORE = "perfsuite.step()"


@pytest.mark.parametrize(("first", "updates"), [("", 1), (BEFORE, 4)])
def test_updates_by_torch_make_one_step_by_hand(tmp_path, first, updates):
    """The optimizer's steps are no longer those of the loop: a rollout and its updates are."""
    done = measured(tmp_path, START + ROLLOUTS.format(first=first, updates=updates))

    assert done.outcome == "fits", done.failure
    assert done.readings["model_flop"].value == (1 + 2 * updates) * 2 * 4 * 8 * 8


def test_steps_by_hand_that_begin_late_are_told(tmp_path):
    """The steps that were measured before would be other ones."""
    told = measured(tmp_path, START + ROLLOUTS.format(first="", updates=4)).failure.message

    assert "Call it once before the first optimizer step, too." in told


def test_phases_and_parts_are_named_by_hand(tmp_path):
    """A named phase has the time of all that runs in it, a part what its modules and its other operators allocate."""
    own = """
import perfsuite, time
with perfsuite.part("reward model"):
    judge = nn.Linear(8, 2)
for _ in range(60):
    with perfsuite.phase("rollout"):
        with perfsuite.part("reward model"), torch.no_grad():
            kept = judge(torch.randn(4, 8)) + 1
            time.sleep(0.02)
        with perfsuite.phase("forward"):
            time.sleep(0.01)
    step()
"""
    done = measured(tmp_path, START + own)
    readings = done.readings

    assert done.outcome == "fits", done.failure
    assert 0.02 < readings["other_seconds"].phases["rollout"] < readings["other_seconds"].value
    assert readings["forward_seconds"].value > 0.01
    named = {name for name in readings["operators"].suspects if name.startswith("rollout: ")}
    assert named == {
        "rollout: aten::add @ reward model",
        "rollout: aten::randn @ reward model",
        "rollout: aten::addmm @ reward model.Linear_0",
        "rollout: aten::t @ reward model.Linear_0",
    }
    assert readings["peak_memory_bytes"].suspects["temporaries: aten::add @ reward model"] == 4 * 2 * 4
    assert readings["peak_memory_bytes"].suspects["parameters: aten::empty @ reward model"] == 4 * (8 * 2 + 2)


def test_the_weights_of_a_frozen_model_are_parameters(tmp_path):
    """A reward model or a teacher is called in evaluation mode, and no optimizer has it."""
    teacher = "teacher = nn.Linear(8, 64).eval()\nwith torch.no_grad(): teacher(torch.randn(4, 8))\n"
    done = measured(tmp_path, START + teacher + "for _ in range(60): teacher(torch.randn(4, 8)); step()")

    assert done.readings["peak_memory_bytes"].parts["parameters"] == 4 * (8 * 8 + 8 + 8 * 64 + 64)


EVALUATING = """
def evaluate():
    with torch.set_grad_enabled({recorded}):
        model(torch.randn(1, 8)).mean()
"""
EACH_STEP = EVALUATING + "for _ in range(40): step(); evaluate()"
SELDOM = EVALUATING + "for at in range(40): step(); at % 5 or (model.eval(), evaluate(), model.train())"


def test_an_evaluation_that_autograd_records_is_counted(tmp_path):
    """Without its ``no_grad`` it calls the same operators, below the peak: only what is kept for a backward tells."""
    with_it, without = (measured(tmp_path, START + EACH_STEP.format(recorded=one)).readings for one in (False, True))

    assert without["operators"] == with_it["operators"]
    assert without["peak_memory_bytes"].value == with_it["peak_memory_bytes"].value
    more = Counter(without["recorded_operators"].suspects) - Counter(with_it["recorded_operators"].suspects)
    assert more == {
        "forward: aten::addmm @ Linear": 1,
        "forward: aten::t @ Linear": 1,
        "other: aten::mean @ (other)": 1,
    }


def test_an_evaluation_with_gradients_is_told_in_any_step(tmp_path):
    """Few scripts evaluate in each step, and one step alone is counted."""
    with_it, without = (measured(tmp_path, START + SELDOM.format(recorded=one)) for one in (False, True))

    parts = [one.readings["active_facts"].parts for one in (with_it, without)]
    assert parts[1] == parts[0] | {"evaluated with gradients Linear": 1}


def test_precision_and_a_garbage_collection_that_is_off_are_active(tmp_path):
    """Autocast is over when the optimizer steps. Circles of objects are left, although a collection would free them."""
    cast = "import gc; gc.disable()\nfor _ in range(40):\n"
    cast += "    with torch.autocast('cpu'): loss = model(torch.randn(4, 8)).mean()\n"
    done = measured(tmp_path, START + cast + "    optimizer.zero_grad(); loss.backward(); optimizer.step()")

    assert done.readings["active_facts"].parts == {
        "optimizers torch.optim.adamw.AdamW": 1,
        "wrappers none": 1,
        "world size 1": 1,
        "autocast torch.bfloat16": 1,
        "garbage collection off": 1,
    }


def test_by_hand_costs_nothing_elsewhere():
    """Without perfsuite's hook nothing happens, and torch is not imported."""
    calls = "perfsuite.step()\nwith perfsuite.phase('a'), perfsuite.part('b'): print('torch' in sys.modules)"
    code = f"import perfsuite, sys\n{calls}"

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


def test_another_number_of_ranks_is_told(tmp_path):
    """With the hardware that the cell should have."""
    done = measured(tmp_path, DDP, TORCHRUN, "cpu_x1")

    assert "The script trains on 2 ranks, but its cell has 1: its hardware is cpu_x2." in done.failure.message
    assert done.failure.world_size == 2


def test_what_it_writes_is_in_a_copy(tmp_path):
    """A checkpoint of the user's stays as it was, and an output folder may not exist."""
    (tmp_path / "last.pt").write_text("mine")
    text = "import os\nos.makedirs('out')\nfor _ in range(60): step(); torch.save(1, 'last.pt'); torch.save(1, 'out/1')"

    assert measured(tmp_path, START + text).outcome == "fits"
    assert (tmp_path / "last.pt").read_text() == "mine"
    assert not (tmp_path / "out").exists()


def test_files_that_anything_of_a_script_reads_are_its_code(tmp_path, monkeypatch):
    """A step reads one, and another process imports one and reads one. Nobody reads the last, and one is written."""
    monkeypatch.chdir(tmp_path)
    for name in ("late.txt", "theirs.txt", "unread.txt", "written.txt", "helper.py"):
        (tmp_path / name).write_text("'text'")
    work = "import helper; open('theirs.txt').read(); open('written.txt', 'w').write('')"
    text = f"""import subprocess, sys
for number in range(60):
    step()
    if number == 8:
        open('late.txt').read()
        subprocess.run([sys.executable, '-c', {work!r}], check=True)
"""
    made = measured(tmp_path, START + text)

    assert made.outcome == "fits", made.failure
    assert set(unpack(made.imports)) == {"train.py", "late.txt", "theirs.txt", "helper.py"}


def test_of_many_files_that_are_read_some_are_named(tmp_path, monkeypatch):
    """A folder of data may have millions, which hide no settings beside it. A file that the script has made is none of
    the user's. A link that was used counts.
    """
    monkeypatch.setattr(read_files, "MOST_FILES", 3)
    (tmp_path / "top" / "data").mkdir(parents=True)
    for name in ("data/c", "data/b", "data/a", "settings"):
        (tmp_path / "top" / name).write_text(name)
    (tmp_path / "top" / "link").symlink_to("data")
    script_copy.copy_folder(tmp_path / "top", tmp_path / "copy")
    assert read_files.read_in(tmp_path / "copy", tmp_path / "top") == []

    (tmp_path / "copy" / "made").write_text("")
    for name in ("link/a", "data/b", "data/c", "settings"):
        (tmp_path / "copy" / name).read_bytes()

    there = [str(tmp_path / "top" / name) for name in ("data/a", "link", "settings")]
    assert read_files.read_in(tmp_path / "copy", tmp_path / "top") == there


def test_another_command_is_a_change_that_a_trial_reverts(tmp_path):
    """A command that was --wait 0, and is --wait 9 now. The folder is another one on each machine."""
    (tmp_path / "train.py").touch()
    model = script("train", f"python {tmp_path}/train.py --wait 9", tmp_path)
    kind = ServerKind("cpu", "", HERE, "", model)
    record, recorded = samples.measurement(), "python '$REPOSITORY/train.py' --wait 0"
    with contextlib.closing(ScriptServer(kind)) as server:
        line = server._variables(tmp_path, tmp_path / "copy", ())[COMMAND]
    assert line == recorded.replace("0", "9")
    assert variables({COMMAND: line, "HOME": "/root"}, Rank("cpu", 1, 1, frozenset())) == {COMMAND: line}

    now = msgspec.structs.replace(record, flags={COMMAND: line})
    [change] = changes_since(msgspec.structs.replace(record, flags={COMMAND: recorded}), now, None)
    assert (change.name, change.before, change.after, change.fixed) == (COMMAND, recorded, line, None)
    assert changes_since(msgspec.structs.replace(record, flags={"torch threads": "1"}), now, None)[1:] == []

    before = replace(kind, environment=replace(HERE, overrides=((change.name, change.before),)))
    with contextlib.closing(ScriptServer(before)) as server:
        assert server._model(tmp_path).command == ("python", f"{tmp_path}/train.py", "--wait", "0")
        assert server._variables(tmp_path, tmp_path / "copy", ())[COMMAND] == recorded


def test_a_copy_that_is_too_large_is_refused(tmp_path, monkeypatch):
    """Rather than that it fills the disk."""
    monkeypatch.setattr(script_copy, "MOST_BYTES", 10)
    (tmp_path / "data").write_text("more than ten bytes")

    with pytest.raises(UsageError, match="larger than 10 B"):
        script_copy.copy_folder(tmp_path, tmp_path / "copy")


def test_a_virtual_environment_is_not_copied(tmp_path):
    """Nor what git keeps, nor our own folder of temporary files, in which the copy may lie; links stay links."""
    own = f"tmp/perfsuite-{os.getuid()}/work/cell"
    for name in (".git/config", "mine/pyvenv.cfg", "src/net.py", f"{own}/other.py", "tmp/mine"):
        (tmp_path / "top" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "top" / name).touch()
    (tmp_path / "top" / "link").symlink_to("src/net.py")

    copy = tmp_path / "top" / own / "root"
    script_copy.copy_folder(tmp_path / "top", copy)

    assert sorted(str(path.relative_to(copy)) for path in copy.rglob("*")) == [
        *("link", "src", "src/net.py", "tmp", "tmp/mine")
    ]
    assert (copy / "link").is_symlink()


@pytest.mark.parametrize("command", ["", "'"])
def test_a_command_that_cannot_be_read_is_refused(tmp_path, command):
    """With the name of its script."""
    with pytest.raises(UsageError, match="command of the script train"):
        script("train", command, tmp_path)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("python train.py --data a.json", "train"),
        ("torchrun --nproc-per-node 2 src/My-Train.py", "my_train"),
        ("python -m nets.train --lr 1", "nets_train"),
        ("torchrun -m nets.train", "nets_train"),
        ("python -m torch.distributed.run -m nets.fit", "nets_fit"),
        ("python -m open_clip_train.main", "open_clip_train_main"),
        ("python -m mmdet.train configs/x.py", "mmdet_train"),
        ("torchrun -m mmdet.train configs/x.py", "mmdet_train"),
        ("python train.py configs/x.py -m nets", "train"),
        ("python -m torch.distributed.run --nproc-per-node 2 train.py", "train"),
        ("python -m cProfile -o out train.py", "train"),
        ("bash runs/train.sh --lr 1", "train"),
        ("DATA=/a.py ./2nd", "script_2nd"),
        ("bash -c 'cd trainer && python train_pretrain.py --lr 1'", "train_pretrain"),
        ("sh -c 'python -m nets.fit'", "nets_fit"),
        ('sh -c "it\'s"', "sh"),
        ("python Übung_2.py", "ubung_2"),
        ("python 训练.py", "script"),
    ],
)
def test_a_script_is_named_by_its_file_or_module(command, name):
    """In letters that the id of a cell may have."""
    assert name_of(shlex.split(command)) == name


def test_a_script_tells_for_how_many_steps_it_has_room(tmp_path):
    """The most that fit."""
    text = START + "for _ in range(40): step()"
    failure = measured(tmp_path, text, settings=replace(SHORT, steps=100)).failure
    assert failure
    outcomes = [
        measured(tmp_path, text, settings=replace(SHORT, steps=failure.timed_steps + more)).outcome for more in (0, 1)
    ]

    assert outcomes == ["fits", "failed"]


@pytest.mark.parametrize(
    ("room", "asked"),
    [((None, None), [500]), ((70, 60), [500, 60]), ((60, None), [500, 60]), ((2, None), [500, 3])],
)
def test_a_trial_makes_as_many_steps_as_the_scripts_have_room_for(tmp_path, monkeypatch, room, asked):
    """Of both sides, and never fewer than the cell; a pair that failed for that is made again."""
    steps = []

    def launched(pairs, *_):
        steps.append(pairs.settings.steps)
        fewer = [one if one and one < steps[-1] else None for one in room]
        failures = [one and Failure(kind="raised", rank=0, message="", timed_steps=one) for one in fewer]
        return {side: SimpleNamespace(failure=failure, outcome="fits") for side, failure in enumerate(failures)}

    model = script("train", "python train.py", tmp_path)
    monkeypatch.setattr(Pairs, "_launched", launched)
    monkeypatch.setattr(Question, "_pooled", lambda *_, **__: {})
    side = Side("here", Catalog(extra_models=(model,)))
    cell, how = "train-script-cpu_x1", Measuring(side.catalog, SHORT, tmp_path)

    Question(how, side, side, [cell], step_seconds={cell: 0.001}).compare_times()

    assert steps == asked


def test_a_command_may_begin_with_variables(tmp_path):
    """As in a shell. PYTHONPATH is the script's own, and perfsuite still attaches."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "sizes.py").write_text("ROWS = 60")
    text = "import os, sizes\nassert os.environ['A'] == 'b=c'\nfor _ in range(sizes.ROWS): step()"
    done = measured(tmp_path, START + text, ["A=b=c", "PYTHONPATH=src", "python", "train.py"])

    assert done.outcome == "fits", done.failure


def test_a_program_that_is_not_there_is_told(tmp_path):
    """With the way out."""
    assert "There is no program nosuch. Give" in measured(tmp_path, "", ["nosuch", "train.py"]).failure.message


def test_a_failure_names_the_user_s_files(tmp_path):
    """Not those of the copy in which the script ran."""
    (tmp_path / "net.py").write_text("raise OSError(__file__)")
    failure = measured(tmp_path, "import net").failure

    assert f'File "{tmp_path}/net.py", line 1' in failure.tail
    assert f"OSError: {tmp_path}/net.py" in failure.message


def test_the_command_prints_and_writes_what_it_measured(tmp_path):
    """What matters first, then with --all every number, and how the script is guarded."""
    (tmp_path / "my-train.py").write_text(START + "for _ in range(60): step()")
    command = [sys.executable, "-m", "perfsuite.cli.main", "run", "--steps", "3", "--json", "m.json"]

    done = subprocess.run(
        [*command, "--launches", "1", "--all", "--", "python", "my-train.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    lines = done.stdout.splitlines()

    assert done.returncode == 0, done.stderr
    assert " a step on " in lines[1] and " at the peak: " in lines[2]
    assert any(line.startswith("  peak memory ") for line in lines)
    assert "step by step:" in done.stdout
    assert lines[-1] == "Guard it: perfsuite init -- python my-train.py"
    assert json.loads((tmp_path / "m.json").read_text())["cell"] == "my_train-script-cpu_x1"


ASKS = """
for _ in range(60):
    x = torch.randn(4, 8, requires_grad=True)
    (slope,) = torch.autograd.grad(model(x).sum() - 1000, x, create_graph=True)
    optimizer.zero_grad(); slope.pow(2).mean().backward(); optimizer.step()
"""


def test_what_a_script_differentiates_by_itself_is_no_loss(tmp_path):
    """autograd.grad returns gradients, and backward trains."""
    losses = measured(tmp_path, START + ASKS).readings["loss"].samples

    assert min(losses) > 0
