"""What two ranks of a script hide: each is seen by a number that a sound script does not have."""

import contextlib

import psutil
import pytest
from small_scripts import measured

from perfsuite.meters.own_host import LEAST

TRAIN = """
import os, subprocess, sys, torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
torch.manual_seed(0)
dist.init_process_group("gloo")
rank = dist.get_rank()
own = [dist.new_group([one]) for one in range(2)][rank]
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)){more})
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
torch.manual_seed(rank)
kept = []
{before}
for number in range({steps}):
    {each}
    loss = model(torch.randn(4, 8)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
MOVED = "[one.data.add_(0.001) for one in model.parameters() if rank == 1]"


def trained(folder, each="pass", before="", more="", steps=60):
    """The readings of such a training."""
    text = TRAIN.format(each=each, before=before, more=more, steps=steps)
    found = measured(folder, text, "torchrun --nproc-per-node 2", 2)
    assert found.outcome == "fits", found.failure
    return found.readings


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """The training as it should be."""
    return trained(tmp_path_factory.mktemp("sound"))


def test_a_sound_training_hides_nothing(sound):
    """Replicas are equal; BatchNorm's running numbers are those of each rank's own rows."""
    assert sound["drifted_replicas"].value == 0
    assert sound["differing_tensors"].parts == {"buffers": 2}
    assert sound["joined_groups"].parts.keys() == {"all_reduce of 2 ranks", "broadcast of 2 ranks"}
    assert sound["open_files_left"].value == 0


def test_a_barrier_is_counted(sound, tmp_path):
    """It sends nothing, and all wait."""
    readings = trained(tmp_path, "dist.barrier()")

    assert readings["joined_groups"].parts == sound["joined_groups"].parts | {"barrier of 2 ranks": 1}
    assert readings["collectives"].value == sound["collectives"].value


def test_a_group_of_one_rank_exchanges_nothing(sound, tmp_path):
    """Its collectives and bytes are those of all ranks."""
    readings = trained(tmp_path, more=", process_group=own, broadcast_buffers=False")

    assert readings["joined_groups"].parts.keys() == {"all_reduce of 1 rank"}
    assert readings["differing_tensors"].value > sound["differing_tensors"].value


def test_a_weight_that_one_rank_moved_is_wrong(tmp_path):
    """The replicas differ for ever."""
    drifted = trained(tmp_path, before=MOVED)["drifted_replicas"]

    assert drifted.value == 4
    assert drifted.suspects.keys() == {
        f"parameters: DistributedDataParallel.module.{name}" for name in ("0.weight", "0.bias", "1.weight", "1.bias")
    }


def test_a_weight_that_one_rank_moves_later_is_wrong(sound, tmp_path):
    """From the 20th batch on: the loss that is seen is nearly the same."""
    readings = trained(tmp_path, f"number == 20 and {MOVED}")

    assert sound["parted_replicas"].value == readings["drifted_replicas"].value == 0
    assert readings["parted_replicas"].value == 1


def test_local_sgd_says_where_its_step_ends(tmp_path):
    """Its replicas differ between averages. One step of it has four of the optimizer, and the average."""
    before = "import perfsuite; model.require_backward_grad_sync = False"
    last = "number % 4 == 0 and number and ([average(one) for one in model.parameters()], perfsuite.step())"
    average = "; average = lambda one: dist.all_reduce(one.data) or one.data.div_(2); perfsuite.step()"
    readings = trained(tmp_path, each=last, before=before + average, steps=140)

    assert readings["drifted_replicas"].value == 0
    assert readings["joined_groups"].parts["all_reduce of 2 ranks"] == 4


def test_what_one_rank_keeps_in_python_is_seen(sound, tmp_path):
    """100 KiB of bytes in each step are no tensor, and one object."""
    grown = trained(tmp_path, "rank and kept.append(bytes(100 * 1024))")["host_grown_bytes"]

    assert sound["host_grown_bytes"].value == 0
    assert grown.ranks[0] == 0
    assert 100 * 1024 <= grown.ranks[1] < 100 * 1024 + LEAST


def test_a_descriptor_of_each_step_is_seen(tmp_path):
    """Duplicated, so no file is opened."""
    left = trained(tmp_path, "rank and kept.append(os.dup(0))")["open_files_left"]

    assert left.ranks == [0, 1]
    assert sum(left.parts.values()) == 1


@pytest.mark.parametrize("variables", ["None", "{}"])
def test_a_process_that_is_left_is_seen(cold, tmp_path, variables):
    """Also one that has none of the script's variables. It ends with the script."""
    pid = tmp_path / "pid"
    sleeps = f"rank and open({str(pid)!r}, 'w').write(str(subprocess.Popen(['/bin/sleep', '60'], env={variables}).pid))"
    there = trained(tmp_path, before=sleeps)["processes_at_end"]

    assert there.suspects["processes: sleep"] == 1
    assert there.value == 4  # the launcher and two ranks
    with contextlib.suppress(psutil.NoSuchProcess):  # or nobody has waited for it yet
        assert psutil.Process(int(pid.read_text())).status() == psutil.STATUS_ZOMBIE


def test_a_spike_of_a_later_step_is_in_the_peak_of_all_steps(sound, tmp_path):
    """Three steps are recorded, and this one comes after them."""
    readings = trained(tmp_path, "number == 8 and torch.zeros(2**20)")

    assert readings["peak_memory_bytes"].value == sound["peak_memory_bytes"].value
    assert readings["run_peak_bytes"].value > sound["run_peak_bytes"].value + 2**22 - 2**12
