"""``--emulated`` of ``perfsuite memory`` and ``fit``: how it starts, what it prints, what it refuses."""

import os
import subprocess
import sys

import pytest
from gate_samples import CELL, MACHINE, PARTS, measurement
from rich.console import Console

from perfsuite.catalog.cell import parse_cell
from perfsuite.cli import main as cli
from perfsuite.features.predict import beside_emulated as _emulated
from perfsuite.features.predict.beside_emulated import sentence
from perfsuite.features.predict.memory_table import beside
from perfsuite.features.predict.prediction import Prediction
from perfsuite.features.predict.traced_memory import unsupported
from perfsuite.records.formats import FORMAT
from perfsuite.records.sample import Reading
from perfsuite.system import machine
from perfsuite.system.machine import Gpu

GIB = 2**30
RESERVED = {"reserved_memory_bytes": Reading(value=21 * GIB), "free_memory_bytes": Reading(value=3 * GIB)}


@pytest.fixture
def started(monkeypatch):
    """The command that this process would become."""
    commands = []

    def execute(path, command):
        assert path == command[0] == sys.executable
        commands.append(command)
        raise SystemExit

    monkeypatch.setattr(_emulated, "gpus", lambda: ())
    monkeypatch.setattr(os, "execv", execute)
    return commands


def test_memory_runs_itself_on_the_cells_devices(started):
    """The cell's id holds all other options. The process becomes that command: a Ctrl-C ends it once."""
    words = ["gpt2_tiny", "--strategy", "fsdp2+bf16", "--hardware", "h100_x2", "-b", "3", "--emulated", "--fresh"]

    with pytest.raises(SystemExit):
        cli.main(["memory", *words])
    [command] = started
    assert command[3:6] == ["emulate", "--gpus", "h100:2"]
    at = command.index("--")
    assert command[at + 4 :] == ["memory", "gpt2_tiny-fsdp2+bf16-h100_x2-b3", "--fresh", "--emulated"]


def test_fit_runs_itself_on_the_devices(started):
    words = ["gpt2_tiny", "--hardware", "a100_80g_x2", "--strategy", "single+compile", "ddp+bf16", "-s", "64"]

    with pytest.raises(SystemExit):
        cli.main(["fit", *words, "--emulated"])
    [command] = started
    at = command.index("--")
    assert command[5:at] == ["a100_80g:2"]
    lengths = ["--sequence-length", "64"]
    strategies = ["--strategy", "single+compile", "ddp+bf16"]
    assert command[at + 4 :] == [
        *["fit", "gpt2_tiny", "--hardware", "a100_80g_x2"],
        *[*lengths, *strategies, "--emulated"],
    ]


def test_memory_of_a_script_runs_itself_on_the_devices(started, tmp_path):
    """The command stays as it is, with its own options."""
    made = str(tmp_path / "made.json")
    script = ["torchrun", "--nproc-per-node", "2", "train.py", "--strategy", "fast"]

    with pytest.raises(SystemExit):
        cli.main(["memory", "--json", made, "--hardware", "h100_x2", "--", *script])
    [command] = started
    assert command[3:6] == ["emulate", "--gpus", "h100:2"]
    at = command.index("--")
    assert command[at + 4 :] == ["memory", "--hardware", "h100_x2", "--json", made, "--emulated", "--", *script]


def test_memory_of_a_projects_script_runs_itself_on_the_devices(started, tmp_path, monkeypatch):
    """By the id of its cell."""
    (tmp_path / "pyproject.toml").write_text('[tool.perfsuite.scripts]\ntrain = "python train.py"\n')
    monkeypatch.chdir(tmp_path)

    with pytest.raises(SystemExit):
        cli.main(["memory", "train-script-h100_x1"])
    [command] = started
    assert command[command.index("--") + 4 :] == ["memory", "train-script-h100_x1", "--emulated"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--", "python", "train.py"], "Name the hardware of the script, such as --hardware h100_x1."),
        (["--hardware", "h100_x1", "--sweep", "seq", "--", "python", "t.py"], "its own model and batches: leave out"),
        (["--hardware", "cpu_x1", "--", "python", "train.py"], "a CPU is no such device"),
        (["--hardware", "h1000_x1", "--", "python", "train.py"], "No hardware named 'h1000'. Did you mean 'h100', "),
    ],
)
def test_a_script_that_cannot_be_emulated_is_refused(started, capsys, words, reason):
    assert cli.main(["memory", *words]) == cli.BAD_INPUT
    assert reason in capsys.readouterr().err
    assert started == []


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["memory", "gpt2_tiny"], "a CPU is no such device"),
        (["memory", "gpt2_tiny", "--strategy", "ddp", "--hardware", "h100_x8n2"], "h100_x8n2 has 2"),
        (["memory", "gpt2_tiny", "--hardware", "h100_x1", "--sweep", "seq"], "leave out the other options"),
        (["memory", "gpt2_tiny", "--hardware", "h100_x1", "--unpadded"], "leave out the other options"),
        (["fit", "gpt2_tiny", "--hardware", "h100_x1", "--unpadded"], "leave out --unpadded"),
    ],
)
def test_what_cannot_be_emulated_is_refused(started, capsys, words, reason):
    assert cli.main([*words, "--emulated"]) == cli.BAD_INPUT
    assert reason in capsys.readouterr().err
    assert started == []


def test_other_emulated_devices_are_refused(monkeypatch, capsys):
    """Within an emulation of another device, the cell would run on that one."""
    gpu = Gpu(0, "emulated Tesla T4", 15 * GIB, "emulated", "GPU-0")
    monkeypatch.setattr(machine, "gpus", lambda: (gpu,))
    monkeypatch.setattr(_emulated, "gpus", lambda: (gpu,))

    assert cli.main(["memory", "gpt2_tiny-single+compile-h100_x1", "--emulated"]) == cli.BAD_INPUT
    assert "h100_x1 is not here: this machine has emulated Tesla T4" in capsys.readouterr().err


def text_of(table) -> list[str]:
    console = Console(width=150)
    with console.capture() as captured:
        console.print(table)
    return [" ".join(line.split()) for line in captured.get().splitlines()]


def test_the_table_has_the_difference_by_category():
    """Equal: 0. Otherwise the prediction's bytes less the emulated ones."""
    name, size = next(iter(PARTS.items()))
    parts = {**PARTS, name: size + 512}
    predicted = Prediction(
        format=FORMAT,
        cell=CELL,
        outcome="fits",
        world_size=2,
        peak_bytes=20 * GIB + 512,
        parts=parts,
        reserved_bytes=21 * GIB,
    )
    lines = text_of(beside(predicted, measurement(**RESERVED)))

    assert any(line.startswith(name.replace("_", " ")) and "+512 B" in line for line in lines)
    assert any(line.startswith("live tensors 20.00 GiB 20.00 GiB +512 B") for line in lines)
    assert any(line.startswith("reserved 21.00 GiB 21.00 GiB 0 ") for line in lines)


def test_without_a_prediction_only_the_emulated_bytes_are_in_the_table(catalog):
    cell = parse_cell(CELL, catalog)
    lines = text_of(beside(unsupported(cell, "it cannot be traced."), measurement(**RESERVED)))

    assert any(line.startswith("live tensors 20.00 GiB – –") for line in lines)


def test_every_ending_says_emulated():
    """What is left, what was missing, or why it failed."""
    assert sentence(measurement(machine=MACHINE, **RESERVED)) == "emulated, it fits: 3.00 GiB are left"
    assert sentence(measurement("oom")).startswith("emulated, it runs out of memory: ")
    assert sentence(measurement("failed")).startswith("emulated, it fails: ")


@pytest.mark.emulated
def test_a_prediction_equals_its_emulated_run():
    """On the device of EMULATED; no category has a difference. What cannot be traced is measured alone."""
    device = os.environ.get("EMULATED", "h100")
    words = [sys.executable, "-m", "perfsuite.cli.main"]
    tiny = [*words, "memory", f"gpt2_tiny-single+bf16-{device}_x1", "--emulated"]
    equal = subprocess.run(tiny, capture_output=True, text=True, timeout=900, check=False)
    fit = [*words, "fit", "gpt2_tiny", "--hardware", f"{device}_x1", "--strategy", "single+fp16+hf_trainer"]
    untraced = subprocess.run([*fit, "--emulated"], capture_output=True, text=True, timeout=900, check=False)

    assert equal.returncode == 0, equal.stderr
    assert "on emulated GPUs, no real one, next to the prediction" in equal.stdout
    rows = [line.split() for line in equal.stdout.splitlines() if "iB" in line and "left" not in line]
    assert len(rows) >= 6
    assert [row for row in rows if "+" in " ".join(row) or " 0 " not in " ".join(row)] == []
    assert untraced.returncode == 0, untraced.stderr
    assert "hf_trainer-" in untraced.stdout and ": emulated, it fits: " in untraced.stdout
