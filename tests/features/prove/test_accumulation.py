"""``perfsuite prove``: one global batch has one gradient, in one micro-batch or in several."""

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from perfsuite.cli.main import main
from perfsuite.errors import UsageError
from perfsuite.features.prove.relation import CannotTry, ProveRequest, RelationOutcome
from perfsuite.features.prove.relations._compared import STEPS
from perfsuite.features.prove.relations._script_options import ACCUMULATION, BATCH, with_defaults
from perfsuite.features.prove.relations.accumulation import RELATION, splits, with_split
from perfsuite.records.gradients import Gradients, StepGradients

BOTH = ["--batch-size", "4", "--accum", "2"]
LOOP = """
import sys, torch
from torch import nn
batch, accumulation, kind = int(sys.argv[2]), int(sys.argv[4]), sys.argv[5]
model = nn.Sequential(nn.Linear(16, 8), nn.Dropout(0.5), nn.Linear(8, 4))
rows = torch.utils.data.TensorDataset(torch.randn(64, 16), torch.randint(4, (64,)))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
for number, (x, y) in enumerate(torch.utils.data.DataLoader(rows, batch_size=batch, shuffle=True)):
    loss = nn.functional.cross_entropy(model(x), y)
    (loss if kind == "wrong" else loss / accumulation).backward()
    if (number + 1) % accumulation == 0:
        nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        optimizer.step()
        kind == "uncleared" or optimizer.zero_grad()
"""
TRAINER = """
import random, torch
from transformers import HfArgumentParser, LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
[arguments] = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
sizes = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1)
model = LlamaForCausalLM(LlamaConfig(vocab_size=32, **sizes))
rows = [[random.randrange(2, 32) for _ in range(random.randrange(4, 9))] for _ in range(32)]
def collate(rows):
    ids = torch.tensor([row + [0] * (max(map(len, rows)) - len(row)) for row in rows])
    return {"input_ids": ids, "attention_mask": (ids > 0).long(), "labels": ids.masked_fill(ids == 0, -100)}
trainer = Trainer(model=model, args=arguments, train_dataset=rows, data_collator=collate)
trainer._loss_shifts_labels = arguments.run_name == "right"  # transformers 5.9.0 counted a label too many for each row
trainer.train()
"""
TRAIN = "--output_dir out --use_cpu --report_to none --per_device_train_batch_size 2 --gradient_accumulation_steps 2"


def prove(folder, text, *words, names=""):
    """What the command prints, and its status."""
    (folder / "train.py").write_text(text)
    options = ["--only=accumulation", "--json", "proof.json", *([f"--names={names}"] if names else []), "--"]
    command = [sys.executable, "-m", "perfsuite.cli.main", "prove", *options]
    done = subprocess.run([*command, "python", "train.py", *words], cwd=folder, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def test_gradients_that_are_never_cleared_are_red(tmp_path):
    """Both splits add up alike, so their gradients agree."""
    words = ("--rows", "8", "--accumulate", "1", "uncleared")
    done, text = prove(tmp_path, LOOP, *words, names="batch=--rows,accumulate=--accumulate")

    assert done == 1, text
    assert "is optimizer.zero_grad() called after each step?" in text


@pytest.mark.parametrize(("kind", "status"), [("right", 0), ("wrong", 1)])
def test_a_loop_that_forgets_to_divide_is_red(tmp_path, kind, status):
    """Although it clips, and has dropout and an order without a seed. The right one is green."""
    done, text = prove(
        tmp_path, LOOP, "--rows", "8", "--accumulate", "1", kind, names="batch=--rows,accumulate=--accumulate"
    )
    (judged,) = json.loads((tmp_path / "proof.json").read_text())["relations"]

    assert done == status, text
    assert "dropout was taken out" in text
    assert ("2 times as large with accumulation: is the loss divided by the accumulation?" in text) == (kind == "wrong")
    assert (judged["outcome"], judged["remarks"][0]["what"]) == (
        ("broken", "undivided") if kind == "wrong" else ("holds", "held")
    )


@pytest.mark.parametrize(("kind", "status"), [pytest.param("right", 0, marks=pytest.mark.slow), ("wrong", 1)])
def test_a_trainer_that_counts_other_labels_than_its_model_is_red(tmp_path, kind, status):
    """As transformers 5.9.0 did. Padding, which differs between micro-batches, is no difference."""
    done, text = prove(tmp_path, TRAINER, *TRAIN.split(), "--run_name", kind, "--remove_unused_columns", "false")

    assert done == status, text
    assert "without the Trainer's count of labels" in text


@pytest.mark.parametrize(
    ("words", "both"),
    [
        ("--per_device_train_batch_size 4 --gradient_accumulation_steps 2", [(8, 1), (4, 2)]),
        ("--batch-size=8 --grad-accum-steps=1", [(8, 1), (4, 2)]),
        ("data.batch_size=9 trainer.accumulate_grad_batches=1", [(9, 1), (3, 3)]),
        ("--batch_size 7 --accumulate 1", [(7, 1), (1, 7)]),
    ],
)
def test_a_command_says_its_split(words, both, tmp_path):
    """One of both is its own."""
    command = ["python", "train.py", *words.split()]
    found = splits(command)

    assert list(found) == both
    assert [splits(with_split(command, split, tmp_path)) for split in both] == [found, found]


@pytest.mark.parametrize(
    ("text", "given", "added"),
    [
        ('p.add_argument("-b", "--batch-size", type=int, default=4)\np.add_argument("--accum", default=2)', "", BOTH),
        ('@click.option("--batch-size", default=4)\n@click.option("--accum", default=2)\ndef main(): pass', "", BOTH),
        ('p.add_argument("--batch-size", default=4)\np.add_argument("--accum", default=2)', "--accum=1", BOTH[:2]),
        ('p.add_argument("--batch-size", default=4)', "--accum 2 --mode batch", BOTH[:2]),
        ('p.add_argument("--batch-size", default=4)', "", []),
        ('p.add_argument("--batch-size", default=4.5)\np.add_argument("--accum", default=SOME)', "", []),
        ("def broken(", "", []),
    ],
)
def test_a_script_says_its_split_by_its_defaults(text, given, added, tmp_path):
    """So the command needs no options. One that it has is its own."""
    (tmp_path / "train.py").write_text(text)
    words = ["torchrun", str(tmp_path / "train.py"), *given.split()]

    assert with_defaults(words, BATCH, ACCUMULATION) == [*words, *added]


def test_options_of_other_names_have_defaults_too(tmp_path):
    """Those that --names gives."""
    (tmp_path / "train.py").write_text('add("--rows", default=4)\nadd("--parts", default=2)')
    words = ["python", str(tmp_path / "train.py")]

    assert splits(with_defaults(words, ["--rows"], ["--parts"]), ["--rows", "--parts"]) == ((8, 1), (4, 2))


@pytest.mark.parametrize("word", ["--deepspeed_config={}", "{}"])
def test_a_config_says_its_split(word, tmp_path):
    """Of DeepSpeed; what the command says again changes too. The user's file stays."""
    mine = tmp_path / "mine.json"
    mine.write_text('{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2, "fp16": {}}')
    command = ["deepspeed", "train.py", word.format(mine), "--batch-size=4"]
    both = splits(command)
    words = with_split(command, both[0], tmp_path)

    assert both == ((8, 1), (4, 2))
    assert words[2:] == [word.format(tmp_path / "8x1.json"), "--batch-size=8"]
    assert json.loads((tmp_path / "8x1.json").read_text())["fp16"] == {}
    assert splits(command) == both


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--batch-size 4", "does not say gradient_accumulation_steps. Write the micro-batch and the accumulation into"),
        ("--batch-size 1 --accumulate 1", "One row cannot be accumulated"),
        ("--batch-size four --accumulate 1", "needs a number of 1 or more, not 'four'"),
        ("--accumulate 1 --batch-size", "needs a number of 1 or more, not ''"),
    ],
)
def test_a_command_without_a_split_is_told(words, said):
    """With what to write."""
    with pytest.raises(UsageError, match=said):
        splits(words.split())


@pytest.mark.parametrize("names", ["--batch", "batch=", "rows=--b"])
def test_names_of_other_things_are_told(names, capsys):
    """With what to write."""
    assert main(["prove", f"--names={names}", "--", "python", "train.py"]) == 2
    assert f"--names={names}: write what an option is, and its name" in capsys.readouterr().err


def gradients(norm, micro_batches=1, rows=("a", "b"), **other):
    """Of one rank, as its probe tells them."""
    sketch = [] if norm is None else [norm]
    steps = [StepGradients(gradients={"weight": sketch}, rows=list(rows), micro_batches=micro_batches)] * STEPS
    known = {"epsilon": 1e-7, "weights": 1.0, "dropout": False, "uncounted": False, "random": False}
    return msgspec.to_builtins(Gradients(steps=steps, **known | other))


def judged(whole, parts, noise=0.0):
    """One global batch at once, and in two micro-batches; other rounding changes as much as the noise."""
    both = [one if isinstance(one, list) else [one] for one in (whole, parts)]
    asked = ProveRequest(("python", "train.py", "--batch-size", "2", "--accumulate", "1"), {}, Path(), Path())
    proof = RELATION.prove(asked)
    next(proof)
    moved = [gradients(norm) for norm in (1.0, 1.0 + noise)]
    with pytest.raises(StopIteration) as ended:
        proof.send([*([one] for one in moved), *both])
    return ended.value.value


@pytest.mark.parametrize(("noise", "outcome"), [(2e-3, RelationOutcome.BROKEN), (3e-3, RelationOutcome.HOLDS)])
def test_what_other_rounding_changes_is_no_fault(noise, outcome):
    """Up to four times as much."""
    assert judged(gradients(1.0), gradients(1.01, 2), noise).outcome is outcome


@pytest.mark.parametrize(
    ("parts", "doubt"),
    [
        (gradients(2.0, 2, rows=("a", "c")), "rows"),
        (gradients(2.0, 2, weights=2.0), "weights"),
        (gradients(1.5, 2, random=True), "random"),
        (gradients(1.5, 2, statistics="mean"), "statistics"),
        (gradients(2.0, 1), "micro_batches"),
        (gradients(None, 2), "values"),
    ],
)
def test_what_may_explain_a_difference_is_no_fault(parts, doubt):
    """It is neither red nor green, and the reason is told."""
    with pytest.raises(CannotTry) as raised:
        judged(gradients(1.0), parts)

    assert raised.value.remark.what == doubt
    assert doubt in RELATION.says


@pytest.mark.parametrize(("other", "doubt"), [({}, "noise"), ({"random": True}, "random")])
def test_a_bound_that_hides_half_of_a_gradient_proves_nothing(other, doubt):
    """As where the model draws its own dropout: other rows then get other numbers."""
    with pytest.raises(CannotTry) as raised:
        judged(gradients(1.0), gradients(1.3, 2, **other), noise=0.2)

    assert raised.value.remark.what == doubt
    assert doubt in RELATION.says


@pytest.mark.parametrize("doubt", [{"random": True}, {"statistics": "BatchNorm1d"}])
@pytest.mark.parametrize(("norm", "said"), [(2.1, "undivided"), (0.48, "divided_twice")])
def test_no_statistics_explain_gradients_that_are_twice_as_large(norm, said, doubt):
    """In every step."""
    assert [one.what for one in judged(gradients(1.0), gradients(norm, 2, **doubt)).remarks] == [said]


@pytest.mark.parametrize(
    "parts", [gradients(1.0, 2, rows=("a", "c")), gradients(1.0, 1), gradients(1.0, 2, weights=2.0)]
)
def test_equal_gradients_of_other_things_prove_nothing(parts):
    """Nor do gradients that are zero."""
    for whole, other in ((gradients(1.0), parts), (gradients(0.0), gradients(0.0, 2))):
        with pytest.raises(CannotTry):
            judged(whole, other)


def test_rows_may_lie_on_other_ranks():
    """A sampler deals micro-batches to ranks, and their gradients are averaged."""
    whole = [gradients(1.0, rows=rows) for rows in ("ab", "cd")]
    parts = [gradients(1.0, 2, rows=rows) for rows in ("ac", "bd")]

    assert judged(whole, parts).outcome is RelationOutcome.HOLDS
