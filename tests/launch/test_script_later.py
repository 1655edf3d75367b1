"""What a script does after its measured steps is watched for a while: 12 steps are measured here, and 100 seen."""

import contextlib
import os

import pytest
from small_scripts import START, measured

from perfsuite.compare.rules.about import allowed
from perfsuite.compare.rules.series import first_difference
from perfsuite.meters.later import METRICS as LATER_METRICS
from perfsuite.meters.own_host import METRICS
from perfsuite.rank.script.later import MOST_STEPS
from perfsuite.records.suspects import LINE
from perfsuite.run.runner import Settings

AHEAD = Settings(steps=8, warmup=1)  # more than the batches that a loader's worker is ahead
LATER = """
import os, subprocess
from torch.utils.data import DataLoader
kept, cache = [], {{}}
class Row: pass
for number, batch in enumerate(DataLoader(torch.randn(4 * {steps}, 8), batch_size=4)):
    {each}
    step()
{end}
"""


def trained(folder, each="pass", end="", steps=150):
    """The readings of such a training."""
    found = measured(folder, START + LATER.format(each=each, end=end, steps=steps))
    assert found.outcome == "fits", found.failure
    return found.readings


def most_kept(reading, folder):
    """The text of the script's line that keeps most of it."""
    lines = reading.lines[LINE]
    file, _, number = max(lines, key=lambda line: lines[line]).partition(":")
    return (folder / file).read_text().splitlines()[int(number) - 1].strip()


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A training that does nothing more."""
    return trained(tmp_path_factory.mktemp("sound"))


def test_later_steps_of_a_sound_script_show_nothing(sound):
    """They are as those before them."""
    assert 0 < sound["later_steps"].value <= MOST_STEPS  # on a busy machine the time ends them
    assert (sound["ends_seen"].value, sound["failed_ends"].value) == (0, 0)
    assert (sound["open_files_left"].value, sound["processes_at_end"].value) == (0, 1)


def test_what_begins_later_is_seen(sound, tmp_path):
    """A spike of memory, a descriptor of each step, and a process that stays."""
    each = (
        "number == 40 and torch.zeros(2**24)\n"
        "    number > 30 and kept.append(os.dup(0))\n"
        "    number == 35 and kept.append(subprocess.Popen(['/bin/sleep', '60']))"
    )
    readings = trained(tmp_path, each)

    assert readings["peak_memory_bytes"].value == sound["peak_memory_bytes"].value
    assert sound["run_peak_bytes"].value < 2**16
    assert readings["run_peak_bytes"].value > 2**26
    assert readings["open_files_left"].value == 1
    assert readings["processes_at_end"].suspects["processes: sleep"] == 1


def test_what_begins_to_grow_later_is_seen(sound, tmp_path):
    """1 MiB of NumPy's and 16 KiB of tensors from the 24th batch on: three have shown the loop, and 12 are measured."""
    readings = trained(tmp_path, "number > 23 and kept.extend((__import__('numpy').ones(2**17), torch.zeros(2**12)))")

    assert sound["grown_bytes"].value == sound["host_grown_bytes"].value == 0
    assert readings["grown_bytes"].value == 2**14
    assert sound["host_added_bytes"].value < 2**24 < readings["host_added_bytes"].value


def test_objects_that_begin_to_be_left_later_are_seen(sound, tmp_path):
    """One in each step from the 17th batch on. What nobody uses is no leak, though it is not collected at once."""
    anew = "    one = Row(); one.itself = one\n"
    readings = trained(tmp_path, f"number > 16 and kept.append(Row())\n{anew}")

    assert sound["leaked_objects"].value == 0
    assert readings["leaked_objects"].suspects == {"__main__: __main__.Row": 1}
    assert most_kept(readings["leaked_objects"], tmp_path) == "number > 16 and kept.append(Row())"


def test_the_line_of_bytes_that_begin_to_be_kept_later_is_named(tmp_path):
    """The measured steps have kept nothing: only later ones say that something grows."""
    readings = trained(tmp_path, "number > 16 and kept.append(bytes(2**17))")

    assert readings["host_grown_bytes"].value >= 2**14
    assert most_kept(readings["host_grown_bytes"], tmp_path) == "number > 16 and kept.append(bytes(2**17))"


def test_weights_that_train_no_longer_are_seen(sound, tmp_path):
    """From the 20th batch on."""
    metric = next(one for one in LATER_METRICS if one.name == "later_losses")
    old, new = (
        sound["later_losses"],
        trained(tmp_path, "number == 20 and model.weight.requires_grad_(False)")["later_losses"],
    )

    assert first_difference(metric, old, old, "loss") is None
    assert first_difference(metric, new, old, "loss")


def test_a_loss_that_is_no_number_later_is_red(tmp_path):
    """From the 20th batch on: three have shown the loop."""
    each = "number == 20 and model.weight.data.fill_(float('nan'))"
    found = measured(tmp_path, START + LATER.format(each=each, end="", steps=150))

    assert found.outcome == "failed"
    assert "The loss is nan in step 17" in found.failure.message


def test_longer_batches_are_seen(sound, tmp_path):
    """Four times as many samples from step 30 on."""
    longer = "if number > 30: next(iter(DataLoader(torch.randn(12, 8), batch_size=12)))"

    assert sound["most_samples"].value == 4
    assert trained(tmp_path, longer)["most_samples"].value == 16


@pytest.mark.parametrize(("end", "failed"), [("", {}), ("raise LookupError('no folder')", {"script: LookupError": 1})])
def test_the_end_of_a_script_is_seen(tmp_path, end, failed):
    """It ends within the later steps, and may fail there."""
    readings = trained(tmp_path, end=end, steps=30)

    assert (readings["ends_seen"].value, readings["failed_ends"].suspects) == (1, failed)
    assert readings["later_steps"].value < 30


@pytest.mark.parametrize(("status", "failed"), [(0, {}), (3, {"script: status 3": 1})])
def test_a_script_that_ends_its_process_is_measured(tmp_path, status, failed):
    """No function at exit is called."""
    assert trained(tmp_path, end=f"os._exit({status})", steps=30)["failed_ends"].suspects == failed


def test_a_script_that_goes_on_is_ended(tmp_path):
    """It evaluates for long, and its process is gone."""
    end = f"import time\nopen({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)"

    assert trained(tmp_path, end=end, steps=30)["ends_seen"].value == 0
    with contextlib.suppress(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
        pytest.fail("it still runs")


def test_ranks_that_see_different_numbers_of_steps_end(tmp_path):
    """One rank fails alone, and the others wait for it."""
    two = START.replace("model = nn", 'torch.distributed.init_process_group("gloo")\nmodel = nn')
    text = two + (
        "from torch import distributed\nfor number in range(400):\n    step()\n    distributed.barrier()\n"
        "    if number == 30 and distributed.get_rank(): raise LookupError('no row')"
    )
    found = measured(tmp_path, text, "torchrun --nproc-per-node 2", 2)

    assert found.outcome == "fits", found.failure
    assert found.readings["failed_ends"].suspects == {"script: LookupError": 1}


def test_what_goes_on_to_grow_is_a_leak(tmp_path):
    """Objects, tensors, and bytes of Python."""
    readings = trained(tmp_path, "kept.append((Row(), torch.randn(2**14), bytes(2**16)))")

    assert readings["leaked_objects"].suspects["__main__: __main__.Row"] == 1
    assert readings["grown_bytes"].value == 2**16
    assert readings["host_grown_bytes"].value >= 2**16


def test_the_line_of_a_leak_is_not_one_that_makes_objects_anew(tmp_path):
    """Another line holds more of them, and of each step only the last ones."""
    readings = trained(tmp_path, "anew = [Row() for _ in range(64)]\n    kept.append(Row())")

    assert readings["leaked_objects"].suspects["__main__: __main__.Row"] == 1
    assert most_kept(readings["leaked_objects"], tmp_path) == "kept.append(Row())"


def test_the_line_of_kept_objects_is_not_that_of_kept_bytes(tmp_path):
    """One line keeps a large buffer a step, the other many objects."""
    readings = trained(tmp_path, "kept.append(bytes(2**17))\n    kept.extend(Row() for _ in range(16))")

    assert most_kept(readings["leaked_objects"], tmp_path) == "kept.extend(Row() for _ in range(16))"
    assert most_kept(readings["host_grown_bytes"], tmp_path) == "kept.append(bytes(2**17))"


def test_what_ends_to_grow_is_a_cache(tmp_path):
    """Nobody sees a bound of it, and it is full after 25 steps."""
    readings = trained(tmp_path, "cache[number % 25] = Row(), torch.randn(2**14), bytes(2**16)")

    assert readings["leaked_objects"].value == readings["grown_bytes"].value == readings["host_grown_bytes"].value == 0
    assert readings["cached_objects"].suspects["__main__: __main__.Row"] == 1


def test_a_leak_in_a_worker_is_seen(tmp_path):
    """A mebibyte in each step, of which the rank has nothing."""
    rows = (
        "import torch, os\nkept = []\n"
        "class Rows(torch.utils.data.Dataset):\n"
        "    def __len__(self): return 4 * 400\n"
        "    def __getitem__(self, number):\n"
        "        {leak}\n"
        "        return torch.ones(8)\n"
    )
    loop = "for batch in DataLoader(Rows(), batch_size=4, num_workers=1, multiprocessing_context='fork'):\n    step()\n"
    readings = []
    for name, leak in (("sound", "bytes(2**18)"), ("leaks", "kept.append(os.urandom(2**18))")):
        (tmp_path / name).mkdir()
        text = START + "from torch.utils.data import DataLoader\n" + rows.format(leak=leak) + loop
        found = measured(tmp_path / name, text, settings=AHEAD)
        assert found.outcome == "fits", found.failure
        readings.append(found.readings["worker_grown_bytes"].value)

    assert readings[0] == 0
    assert 2**19 < readings[1] < 2**21


def test_what_is_mapped_is_host_memory(sound, tmp_path):
    """Memory that a script shares with its children is none of malloc's."""
    readings = trained(tmp_path, "number or kept.append(__import__('mmap').mmap(-1, 2**28))")

    more = readings["host_memory_bytes"].value - sound["host_memory_bytes"].value
    assert abs(more - 2**28) < 2**22


def test_an_import_is_no_host_memory(cold, tmp_path):
    """A script that imports torch first or last has the same, as far as the gate allows. Both share some modules."""
    values = []
    for name, text in (
        ("before", "import pandas\n" + START),
        ("after", START + "import pandas\n"),
    ):
        (tmp_path / name).mkdir()
        found = measured(tmp_path / name, text + "for _ in range(40): step()\n")
        values.append(found.readings["host_memory_bytes"].value)

    metric = next(metric for metric in METRICS if metric.name == "host_memory_bytes")
    assert abs(values[0] - values[1]) < allowed(metric, min(values)), values


def test_a_spike_of_host_memory_is_seen(sound, tmp_path):
    """It is freed at once, and in no phase's count."""
    readings = trained(tmp_path, "number == 20 and __import__('numpy').ones(2**25)")

    assert sound["host_spike_bytes"].value < 2**26
    assert readings["host_spike_bytes"].value >= 2**28
    assert len(readings["host_spike_bytes"].samples) > 12
