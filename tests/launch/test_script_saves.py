"""What a user's script saves: how long its training waits, and how many bytes it writes."""

from pathlib import Path

import pytest
from small_scripts import START, measured

LOOP = """
import io, threading, time
from safetensors.torch import save_file

class Slow:
    def __reduce__(self):
        time.sleep(0.05)
        return (int, ())

for number in range(40):
    step()
    {save}
"""


def saved(folder: Path, save: str):
    """The readings of a script that does this after each step."""
    found = measured(folder, START + LOOP.format(save=save))
    assert found.outcome == "fits", found.failure
    return found.readings


def test_all_between_two_steps_is_one_save(tmp_path):
    """Model and optimizer by two functions: the bytes of both files. What the script does after them is no save."""
    folder = f"f'{tmp_path}/{{number}}"  # of each step: the script is ended in the middle of one
    save = (
        f"__import__('os').mkdir({folder}'); torch.save([Slow(), optimizer.state_dict()], {folder}/one.pt'); "
        f"save_file(model.state_dict(), {folder}/two.safetensors')"
    )
    readings = saved(tmp_path, f"{save}; time.sleep(0.2)")
    third = tmp_path / "3"
    sizes = {"torch": (third / "one.pt").stat().st_size, "safetensors": (third / "two.safetensors").stat().st_size}

    assert readings["checkpoint_bytes"].parts == sizes
    assert readings["checkpoint_bytes"].value == sum(sizes.values())
    assert 0.05 <= readings["save_stall_seconds"].value < 0.2


def test_the_median_save_counts(tmp_path):
    """A first save that also writes something else, and steps without a save, change nothing."""
    path = tmp_path / "one.pt"
    readings = saved(tmp_path, f"number % 3 or torch.save([model, [0.5] * 999][: 1 + (number < 3)], {str(path)!r})")

    assert readings["checkpoint_bytes"].value == path.stat().st_size


def test_what_is_printed_is_no_checkpoint(tmp_path):
    """A progress bar inside of a save is as long as the disk is slow."""
    path = tmp_path / "one.pt"
    says = "Slow.__reduce__ = lambda self: print('…' * number, file=sys.stderr) or (int, ())"
    readings = saved(tmp_path, f"import sys; {says}; torch.save([model, Slow()], {str(path)!r})")

    assert readings["checkpoint_bytes"].value == path.stat().st_size


@pytest.mark.parametrize("prefix", ["", "module."])
def test_other_names_of_weights_are_another_save(tmp_path, prefix):
    """As many tensors of as many bytes, which a model does not load."""
    weights = f"{{{prefix!r} + name: one for name, one in model.state_dict().items()}}"
    readings = saved(tmp_path, f"torch.save({{'model': {weights}, 'optimizer': optimizer.state_dict()}}, 'one.pt')")

    (said,) = readings["saved_names"].parts
    assert said.startswith(f"{prefix}bias and 1 more (")


def test_without_a_save_nothing_is_read(tmp_path):
    """Into memory, and by another thread, for which training does not wait."""
    other = "one = threading.Thread(target=torch.save, args=(model, 'one.pt')); one.start(); one.join()"

    assert (
        not {"save_stall_seconds", "checkpoint_bytes"}
        & saved(tmp_path, f"torch.save(model, io.BytesIO()); {other}").keys()
    )


def test_a_library_that_imports_torch_is_watched(tmp_path):
    """Accelerate, which the launcher imports first: its module has no Accelerator yet when torch attaches."""
    first = "from accelerate import Accelerator\n"
    body = "\nmine = Accelerator(cpu=True)\nfor _ in range(40): step(); mine.save_state('state')"
    found = measured(tmp_path, first + START + body, "accelerate launch --cpu --num_processes 1")

    assert found.outcome == "fits", found.failure
    assert found.readings["checkpoint_bytes"].parts.keys() == {"accelerate"}


HOLDS = """
import random, numpy
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict
from accelerate import Accelerator
from safetensors.torch import save_file

schedule = torch.optim.lr_scheduler.LinearLR(optimizer)
mine = Accelerator(cpu=True)
mine.prepare(model, optimizer, schedule)

def plain():
    torch.save({"model": model.state_dict(), "optim": optimizer.state_dict(), "schedule": schedule.state_dict(),
                "scaler": torch.amp.GradScaler("cpu").state_dict(),
                "random": [torch.get_rng_state(), random.getstate(), numpy.random.get_state()]}, "all.pt")

def two_files():
    save_file(model.state_dict(), "model.safetensors")
    torch.save(optimizer.state_dict(), "optimizer.pt")

def distributed():
    weights, state = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": state}, checkpoint_id=f"dcp{number}")

def accelerated():
    mine.save_state("state")

for number in range(40):
    step()
    schedule.step()
    CALL
"""
WEIGHTS, STATE = 2, 6  # tensors: a Linear's, and AdamW's three of each
ALL = {"weights": WEIGHTS, "optimizer": STATE, "scheduler": 1, "scaler": 1, "random state": 3}


@pytest.mark.parametrize(
    ("call", "states"),
    [
        ("plain()", ALL),
        ("two_files()", {"weights": WEIGHTS, "optimizer": STATE}),
        ("distributed()", {"weights": WEIGHTS, "optimizer": STATE}),
        ("accelerated()", {name: number for name, number in ALL.items() if name != "scaler"}),
    ],
)
def test_a_save_holds_states_by_kind(tmp_path, call, states):
    """Whatever writes them. A Linear of 8 has 72 parameters of 4 bytes."""
    found = measured(tmp_path, START + HOLDS.replace("CALL", call))

    assert found.outcome == "fits", found.failure
    assert found.readings["saved_states"].parts == states
    assert found.readings["saved_bytes"].parts["weights"] == 72 * 4
