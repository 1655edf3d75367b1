"""Scripts that nobody here wrote, unchanged, on a CPU with random weights: each is measured, and repeats itself.

They lie in installed packages, in wheels or in source distributions. What needs a package that perfsuite's tests do
not need is marked ``network``.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import other_peoples_data
import pytest

WHEELS = (  # beside what .[suite,test] has
    "trl==1.16.0",
    "lightning==2.6.6",
    "lightning-utilities==0.15.3",
    "torchmetrics==1.9.0",
    "jsonargparse==4.53.0",
    "typeshed-client==2.15.0",
    "docstring-parser==0.18.0",
    "pytorch-ignite==0.5.5",
    "opacus==1.6.0",
    "gymnasium==1.4.0",
    "cloudpickle==3.1.3",
    "farama-notifications==0.0.6",
    "schedulefree==1.4.1",
)
SOURCES = ("pytorch-ignite==0.5.5", "opacus==1.6.0", "schedulefree==1.4.1")
STEPS = 40  # perfsuite needs 23 with its own defaults
TRAINER = (
    f"--output_dir out --max_steps {STEPS} --use_cpu --report_to none --save_strategy no --bf16 false --logging_steps 1"
)
SFT = f"--model_name_or_path model --dataset_name texts {TRAINER}"
DPO = f"--model_name_or_path model --dataset_name pairs {TRAINER}"
REWARD = f"--model_name_or_path rewards --dataset_name pairs {TRAINER}"
GRPO = (
    "--model_name_or_path model --dataset_name prompts --reward_funcs think_format_reward --num_generations 2 "
    f"--max_completion_length 16 {TRAINER}"
)
LIGHTNING = """
from lightning.pytorch.cli import LightningCLI
from lightning.pytorch.demos.boring_classes import BoringDataModule, DemoModel

LightningCLI(DemoModel, BoringDataModule)
"""
TORCHRUN = "torchrun --nproc-per-node 2"
PHASES = ("data", "forward", "backward", "optimizer", "other")


@dataclass(frozen=True, kw_only=True)
class Other:
    """A script of others: where it lies, how it is started, and what is active in it."""

    name: str
    file: str  # below the wheels or the sources
    arguments: str = ""
    launcher: str = "python"
    ranks: int = 1
    optimizer: str
    wrappers: str = "none"
    collectives: bool = False
    logs: bool = False  # prints the loss of each step, as transformers' Trainer does


TRL: dict[str, Any] = {"optimizer": "torch.optim.adamw.AdamW", "logs": True}
PAIR: dict[str, Any] = {"ranks": 2, "wrappers": "DistributedDataParallel", "collectives": True}
OTHERS = (
    Other(name="sft", file="trl/scripts/sft.py", arguments=SFT, **TRL),
    Other(name="dpo", file="trl/scripts/dpo.py", arguments=DPO, **TRL),
    Other(
        name="dpo2",
        file="trl/scripts/dpo.py",
        arguments=f"{DPO} --gradient_accumulation_steps 2",
        launcher=TORCHRUN,
        **TRL,
        **PAIR,
    ),
    Other(name="reward2", file="trl/scripts/reward.py", arguments=REWARD, launcher=TORCHRUN, **TRL, **PAIR),
    Other(name="grpo", file="trl/scripts/grpo.py", arguments=GRPO, optimizer="torch.optim.adamw.AdamW"),
    Other(
        name="zero2",
        file="trl/scripts/sft.py",
        arguments=f"{SFT} --deepspeed zero2.json",
        launcher=TORCHRUN,
        **TRL,
        **PAIR | {"wrappers": "DeepSpeedEngine"},
    ),
    Other(
        name="lightning",
        file="lightning.py",
        arguments="fit --trainer.accelerator cpu --trainer.devices 1",
        optimizer="torch.optim.adam.Adam",
    ),
    Other(
        name="lightning2",
        file="lightning.py",
        arguments="fit --trainer.accelerator cpu --trainer.devices 2",
        optimizer="torch.optim.adam.Adam",
        **PAIR,
    ),
    Other(
        name="ignite",
        file="pytorch_ignite-0.5.5/examples/mnist/mnist.py",
        arguments="--epochs 1",
        optimizer="torch.optim.sgd.SGD",
    ),
    Other(
        name="reinforce",
        file="pytorch_ignite-0.5.5/examples/reinforcement_learning/reinforce.py",
        optimizer="torch.optim.adam.Adam",
    ),
    Other(
        name="actor_critic",
        file="pytorch_ignite-0.5.5/examples/reinforcement_learning/actor_critic.py",
        optimizer="torch.optim.adam.Adam",
    ),
    Other(
        name="opacus",
        file="opacus-1.6.0/examples/mnist.py",
        arguments="--device cpu --epochs 1 --n-runs 1",
        optimizer="torch.optim.sgd.SGD",
    ),
    Other(
        name="char_lstm",
        file="opacus-1.6.0/examples/char-lstm-classification.py",
        arguments="--data-root names --device cpu --epochs 1 --batch-size 64",
        optimizer="torch.optim.sgd.SGD",
    ),
    Other(
        name="schedulefree",
        file="schedulefree-1.4.1/examples/mnist/main.py",
        arguments="--no-cuda --epochs 1",
        optimizer="schedulefree.adamw_schedulefree.AdamWScheduleFree",
    ),
)


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheels in one folder, and the source distributions beside them."""
    folder = tmp_path_factory.mktemp("packages")
    pip = [sys.executable, "-m", "pip", "-q"]
    subprocess.run([*pip, "install", "--no-deps", "--target", str(folder), *WHEELS], check=True)
    sources = folder / "sources"
    for source in SOURCES:
        asked = ["download", "--no-deps", "--no-binary", ":all:", "-d", str(sources), source]
        subprocess.run([*pip, *asked], check=True)
    for archive in sources.glob("*.tar.gz"):
        with tarfile.open(archive) as file:
            file.extractall(folder, filter="data")
    (folder / "lightning.py").write_text(LIGHTNING)
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models, rows and images."""
    folder = tmp_path_factory.mktemp("data")
    subprocess.run([sys.executable, other_peoples_data.__file__, str(folder)], check=True, capture_output=True)
    return folder


def perfsuite_run(folder: Path, variables: Mapping[str, str], *words: str) -> dict[str, Any]:
    """The measurement of two launches."""
    command = [sys.executable, "-m", "perfsuite.cli.main", "run", "--json", "../measured.json", *words]
    done = subprocess.run(command, cwd=folder, env=dict(variables), capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    measurement: dict[str, Any] = json.loads((folder.parent / "measured.json").read_text())
    return measurement


def check(measurement: Mapping[str, Any]) -> None:
    """Exact metrics were equal in both launches, and the phases are parts of the step."""
    readings = measurement["readings"]
    step = readings["step_time_seconds"]["value"]
    phases = [readings[f"{phase}_seconds"]["value"] for phase in PHASES]

    assert measurement["unrepeated"] == {}
    assert len(measurement["launches"]) == 2
    assert sum(phases) == pytest.approx(step, rel=0.5)  # medians of a busy machine
    assert all(phases)
    assert readings["peak_memory_bytes"]["value"] > 0


@pytest.mark.slow
def test_accelerates_own_test(tmp_path):
    """accelerate's test_script.py, on two ranks. Its training makes 12 steps of a model without a matmul."""
    import accelerate

    script = Path(accelerate.__file__).parent / "test_utils" / "scripts" / "test_script.py"
    work = tmp_path / "work"
    work.mkdir()
    shutil.copy(script, work / "train.py")
    words = ("--hardware", "cpu_x2", "--steps", "1", "--warmup", "1", "--", *TORCHRUN.split(), "train.py")
    measurement = perfsuite_run(work, os.environ, *words)

    check(measurement)
    assert measurement["engine"]["world size"] == 2
    assert "model_flop" in measurement["uncounted"]


@pytest.mark.network
@pytest.mark.parametrize("other", OTHERS, ids=lambda other: other.name)
def test_a_script_of_others(other, packages, data, tmp_path):
    """Measured as it is. Exact metrics repeat themselves, and the loss is that of the script without perfsuite."""
    work = tmp_path / "work"
    shutil.copytree(data, work)
    shutil.copy(packages / other.file, work / "train.py")
    path = os.pathsep.join(map(str, [packages, data / "vision"]))
    path = str(packages) if other.file.startswith(("trl", "lightning")) else path  # torchmetrics looks for torchvision
    variables = {**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hub")}
    command = [*other.launcher.split(), "train.py", *other.arguments.split()]
    hardware = ("--hardware", f"cpu_x{other.ranks}") if other.ranks > 1 else ()
    measurement = perfsuite_run(work, variables, *hardware, "--", *command)

    check(measurement)
    assert measurement["engine"]["optimizers"] == other.optimizer
    assert measurement["engine"]["wrappers"] == other.wrappers
    assert measurement["engine"]["world size"] == other.ranks
    assert (measurement["readings"]["collectives"]["value"] > 0) == other.collectives
    if other.logs:
        assert_alike(printed_losses(command, work, variables), measurement["readings"]["loss"]["samples"])


def printed_losses(command: list[str], folder: Path, variables: Mapping[str, str]) -> list[str]:
    """What the script prints by itself as the loss of each step."""
    path = os.pathsep.join([str(Path(sys.executable).parent), variables["PATH"]])
    alone = {**variables, "PATH": path, "CUDA_VISIBLE_DEVICES": "", "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, env=alone, capture_output=True, text=True, check=True)
    return re.findall(r"'loss': '?([-\d.e]+)", done.stdout)


def assert_alike(printed: list[str], measured: list[float]) -> None:
    """The first steps show how the loop repeats, and are not measured. A script prints four digits."""
    first = len(printed) - STEPS + 3

    assert len(printed) == STEPS
    assert [float(one) for one in printed[first : first + len(measured)]] == pytest.approx(measured, rel=1e-3)
