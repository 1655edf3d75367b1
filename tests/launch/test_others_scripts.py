"""Scripts that nobody here wrote, unchanged, on a CPU with random weights: each gets a baseline, and faults are found.

They lie in installed packages, in wheels or in source distributions. What needs a package that perfsuite's tests do
not need is marked ``network``, and ``slow``: the nightly workflow runs those.
"""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import other_peoples_data
import pytest
import script_faults

from perfsuite.baselines.store import Store
from perfsuite.catalog.cell import Cell, make_cell
from perfsuite.catalog.registry import Catalog
from perfsuite.catalog.scripts import ENGINE, script
from perfsuite.environments.git import run as git
from perfsuite.records.change import ChangeKind
from perfsuite.records.measurement import Measurement
from perfsuite.records.result import Result
from perfsuite.records.verdict import GREEN, OPEN, RED, Line, Status
from perfsuite.run.gatekeeper import Gatekeeper
from perfsuite.run.measuring import Measuring
from perfsuite.run.runner import Runner, Settings
from perfsuite.run.trial import Trial

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
STEPS = 100  # a measurement needs 23 with the defaults, a trial takes all
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
ACCELERATE = "accelerate launch --cpu --num_processes 1 --num_machines 1 --mixed_precision no --dynamo_backend no"
QUIET = GREEN | OPEN | {Status.NOT_COMPARED}
USUAL = Settings(steps=10, warmup=5)
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


ADAMW: dict[str, Any] = {"optimizer": "torch.optim.adamw.AdamW"}
TRL: dict[str, Any] = {**ADAMW, "logs": True}
PAIR: dict[str, Any] = {"ranks": 2, "wrappers": "DistributedDataParallel", "collectives": True}
OTHERS = (
    Other(name="sft", file="trl/scripts/sft.py", arguments=SFT, **TRL),
    Other(name="sft_packed", file="trl/scripts/sft.py", arguments=f"{SFT} --packing --max_length 32", **TRL),
    Other(
        name="sft_experts",
        file="trl/scripts/sft.py",
        arguments=SFT.replace("path model", "path experts"),
        **TRL,
    ),
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
    Other(name="grpo", file="trl/scripts/grpo.py", arguments=GRPO, **ADAMW),
    Other(
        name="zero2",
        file="trl/scripts/sft.py",
        arguments=f"{SFT} --deepspeed zero2.json",
        launcher=TORCHRUN,
        **TRL,
        **PAIR | {"wrappers": "DeepSpeedEngine"},
    ),
    Other(name="kto", file="trl/scripts/kto.py", arguments=DPO, launcher=ACCELERATE, **TRL),
    Other(name="grpo2", file="trl/scripts/grpo.py", arguments=GRPO, launcher=TORCHRUN, **ADAMW, **PAIR),
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
        arguments="--no-cuda --epochs 1 --batch-size 32",
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


class Guarded:
    """A script as a user guards it: its cell, with a store of baselines beside its folder."""

    def __init__(self, folder: Path, command: str, ranks: int) -> None:
        self.folder = folder
        self.hook = folder / "hook" / "sitecustomize.py"
        self.hook.parent.mkdir()
        self.hook.touch()
        git(folder, "init", "-q")
        git(folder, "add", ".")
        git(folder, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "the script as it is")
        catalog = Catalog(extra_models=(script("train", command, folder),))
        self.cell: Cell = make_cell("train", ENGINE, f"cpu_x{ranks}", catalog)
        self.catalog, self.runner = catalog, Runner(catalog, USUAL)
        self.store, self.how = Store(folder / "baselines"), Measuring(catalog, USUAL, folder)

    def close(self) -> None:
        self.runner.close()

    def recorded(self) -> Measurement:
        """Its first baseline, of two launches in which all exact metrics were equal."""
        result = Gatekeeper(runner=self.runner, store=self.store, how=self.how, consent="new", launches=2).check(
            self.cell
        )

        assert result.updated, result.measurement.failure or result.verdict
        assert result.measurement.unrepeated == {}
        return result.measurement

    def checked(self, fault: str = "") -> Result:
        """The next launch, with such a fault in a file of the user's beside the script."""
        self.hook.write_text(script_faults.hook(fault) if fault else "")
        return Gatekeeper(runner=self.runner, store=self.store, how=self.how).check(self.cell)

    def tried(self, seconds: float) -> Result:
        """The next launch with a delay in each step, tried in pairs against what is committed."""
        self.hook.write_text(script_faults.hook("delay", seconds))
        keeper = Gatekeeper(runner=self.runner, store=self.store, how=self.how, trial=Trial(self.how), always=True)
        result = keeper.check(self.cell)
        return next(keeper.settle(), result)


@pytest.fixture
def guard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Makes a Guarded of the file in the folder ``work``; the folders are on its path."""
    with contextlib.ExitStack() as opened:

        def make(command: str, ranks: int, path: list[Path]) -> Guarded:
            work = tmp_path / "work"
            monkeypatch.chdir(work)
            monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, [work / "hook", *path])))
            monkeypatch.setenv("HF_HUB_OFFLINE", "1")
            monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
            return opened.enter_context(closing(Guarded(work, command, ranks)))

        yield make


def line(result: Result, metric: str) -> Line:
    return next(line for line in result.verdict.lines if line.metric == metric)


def assert_found(guarded: Guarded, metric: str, fault: str, more: int) -> None:
    """That the fault is red, and by how much."""
    result = guarded.checked(fault)
    found = line(result, metric)

    assert result.verdict.status in RED, [(one.metric, one.status) for one in result.verdict.lines]
    assert found.status == Status.REGRESSED, found
    moved = float(found.new or 0) - float(found.old or 0)
    assert moved > 0, found
    assert moved % more == 0, found  # DeepSpeed steps the optimizer inside of its own once for each group of parameters


def assert_delay_found(guarded: Guarded, seconds: float) -> None:
    """That a step that much longer is red, by the user's own code."""
    result = guarded.tried(seconds)
    trial = result.verdict.trial
    assert trial
    about = [(one.metric, one.status, one.change) for one in result.verdict.lines if one.ratio]

    assert result.verdict.status == Status.REGRESSED, (trial, about)
    assert [change.kind for cause in trial.causes for change in cause.changes] == [ChangeKind.CODE]
    print(f"{guarded.cell.id}: {seconds * 1e3:.1f} ms more, {trial.pairs} pairs, {trial.seconds:.0f} s, {about}")


def check(guarded: Guarded, distributed: bool) -> Measurement:
    """It has a baseline and is green twice. More memory, a kept tensor, a collective more and a delay are found."""
    measurement = guarded.recorded()
    readings = measurement.readings
    steps = [step or 0.0 for step in readings["step_time_seconds"].samples]

    assert all(readings[f"{phase}_seconds"].value for phase in PHASES)
    assert sum(readings[f"{phase}_seconds"].value for phase in PHASES) < 2 * max(steps)
    for _ in range(2):
        result = guarded.checked()
        assert not result.measurement.failure, result.measurement.failure
        assert result.verdict.status in GREEN | OPEN, result.verdict.status  # a busy machine delays a step
        assert [one.metric for one in result.verdict.lines if one.status not in QUIET] == []
    assert_found(guarded, "peak_memory_bytes", "memory", script_faults.MORE_BYTES)
    assert_found(guarded, "grown_bytes", "leak", 4)
    if distributed:
        assert_found(guarded, "collectives", "collective", 1)
    assert_delay_found(guarded, script_faults.SLOWER * (readings["step_time_seconds"].value))
    return measurement


@pytest.mark.network
@pytest.mark.slow  # in the nightly workflow
@pytest.mark.parametrize("other", OTHERS, ids=lambda other: other.name)
def test_a_script_of_others(other, packages, data, tmp_path, guard):
    """Measured as it is. Exact metrics repeat themselves, and the loss is that of the script without perfsuite."""
    work = tmp_path / "work"
    shutil.copytree(data, work)
    shutil.copy(packages / other.file, work / "train.py")
    vision = [] if other.file.startswith(("trl", "lightning")) else [data / "vision"]  # torchmetrics looks for it
    command = f"{other.launcher} train.py {other.arguments}"
    measurement = check(guard(command, other.ranks, [packages, *vision]), other.collectives)

    assert measurement.engine["optimizers"] == other.optimizer
    assert measurement.engine["wrappers"] == other.wrappers
    assert measurement.engine["world size"] == other.ranks
    assert (measurement.readings["collectives"].value > 0) == other.collectives
    if other.logs:
        assert_alike(printed_losses(command.split(), work, os.environ), measurement.readings["loss"].samples)


def printed_losses(command: list[str], folder: Path, variables: Mapping[str, str]) -> list[str]:
    """What the script prints by itself as the loss of each step."""
    path = os.pathsep.join([str(Path(sys.executable).parent), variables["PATH"]])
    alone = {**variables, "PATH": path, "CUDA_VISIBLE_DEVICES": "", "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, env=alone, capture_output=True, text=True, check=True)
    return re.findall(r"'loss': '?([-\d.e]+)", done.stdout)


def assert_alike(printed: list[str], measured: Sequence[float | None]) -> None:
    """The first steps show how the loop repeats, and are not measured. A script prints four digits."""
    first = len(printed) - STEPS + 3

    assert len(printed) == STEPS
    assert [float(one) for one in printed[first : first + len(measured)]] == pytest.approx(measured, rel=1e-3)
