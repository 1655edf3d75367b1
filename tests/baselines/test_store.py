"""Baselines on disk: a missing one is None, a broken one is an error, and of two writers the second gets an error."""

import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import msgspec
import pytest
from gate_samples import CELL, GIB, MACHINE, METRICS, OOM, baseline, memory, with_measurement
from hypothesis import given
from hypothesis import strategies as st

from perfsuite.baselines.ledger import Acceptance
from perfsuite.baselines.store import Store
from perfsuite.errors import FileError
from perfsuite.records import codec
from perfsuite.records.baseline import Baseline, TimedRun
from perfsuite.records.formats import FORMAT
from perfsuite.records.sample import Reading

BASELINE = baseline()
CONSENT = Acceptance(how="a test", metrics=METRICS)
BETTER = baseline(peak_memory_bytes=memory(GIB))


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "baselines")


@pytest.fixture
def saved(store):
    """A store that holds the baseline."""
    store.save(BASELINE, replaces=None, consent=CONSENT)
    return store


def change(store, *field, value):
    """Change one field of the file by hand."""
    path = store.path(CELL)
    content = json.loads(path.read_text())
    inner = content
    for key in field[:-1]:
        inner = inner[key]
    inner[field[-1]] = value
    path.write_text(json.dumps(content))


def test_a_baseline_reads_back_as_it_was_saved(saved):
    """What is saved is what is loaded, sample by sample."""
    assert saved.load(CELL) == BASELINE


def test_a_baseline_lies_in_its_hardware_s_folder(saved):
    """root/<hardware>/<id>.json and the ledger, with the rule by which git merges it."""
    files = {path.relative_to(saved.root) for path in saved.root.rglob("*") if path.is_file()}

    assert files == {Path("cpu_x2", f"{CELL}.json"), Path("ledger.jsonl"), Path(".gitattributes")}


def test_the_hardware_of_an_id_with_a_workload_is_its_third_part(store):
    """A workload's suffix does not change the folder."""
    assert store.path(f"{CELL}-b8-s512") == store.root / "cpu_x2" / f"{CELL}-b8-s512.json"


def test_all_lists_every_baseline(saved):
    """The files come in order, whatever else lies there."""
    (saved.root / "README.md").write_text("")
    (saved.root / "cpu_x2" / ".x.json.abc.part").write_text("")

    assert list(saved.all()) == [saved.path(CELL)]


def test_a_file_that_does_not_exist_is_none(store):
    """Only the absence of the file means that there is no baseline."""
    assert store.load(CELL) is None


@pytest.mark.parametrize("text", ["", "x", "../../etc-passwd-cpu_x1", "a-b-../c_x1", "a-b-.._x1", "a-b-c", f"{CELL}\n"])
def test_a_text_that_is_no_id_names_no_file(store, text):
    """No id leads out of the store's folder."""
    with pytest.raises(FileError, match="is not a cell's id"):
        store.path(text)


def test_a_torn_file_is_an_error_at_every_length(saved):
    """However much of a file has been written, half of it is never a baseline and never none."""
    path = saved.path(CELL)
    whole = path.read_bytes().rstrip()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])

        with pytest.raises(FileError, match=f"{CELL}.json is not a baseline: "):
            saved.load(CELL)


def test_a_newer_format_asks_to_upgrade(saved):
    """A file of a later perfsuite is distinguished from a broken one, whatever else it contains."""
    change(saved, "surprise", value=1)
    change(saved, "format", value=FORMAT + 1)

    with pytest.raises(FileError, match=rf"\.json has format {FORMAT + 1}, written by a newer perfsuite: upgrade"):
        saved.load(CELL)


M = ("measurement",)
LOSS = ("measurement", "readings", "loss")
PEAK = ("measurement", "readings", "peak_memory_bytes")


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        pytest.param(("format",), 0, "has format 0, which no perfsuite has written", id="no-format"),
        pytest.param(("format",), True, "format", id="bool-format"),
        pytest.param(("cell",), "t5_tiny-zero2-cpu_x2", "cell is 't5_tiny-zero2-cpu_x2'", id="cell"),
        pytest.param((*M, "cell"), "t5_tiny-zero2-cpu_x2", "measurement.cell is", id="measured-cell"),
        pytest.param((*M, "world_size"), 1, "measurement.world_size is 1, the cell has 2 ranks", id="world-size"),
        pytest.param((*M, "outcome"), "failed", "measurement.outcome is 'failed'", id="failed"),
        pytest.param((*M, "outcome"), "oom", "measurement.failure does not say why", id="outcome-without-reason"),
        pytest.param((*M, "readings"), {}, "measurement.readings is empty", id="no-readings"),
        pytest.param((*M, "wall_seconds"), -1.0, "measurement.wall_seconds is -1.0", id="wall"),
        pytest.param((*M, "capacity_bytes"), 0, "measurement.capacity_bytes is 0", id="capacity"),
        pytest.param((*M, "readings"), None, "$.measurement.readings", id="null"),
        pytest.param((*M, "unknown"), 1, "unknown field `unknown`", id="unknown-field"),
        pytest.param((*LOSS, "value"), float("nan"), "malformed", id="nan"),
        pytest.param((*LOSS, "value"), None, "got `null`", id="null-value"),
        pytest.param((*LOSS, "value"), True, "got `bool`", id="bool-value"),
        pytest.param((*LOSS, "value"), "5.0", "got `str`", id="text-value"),
        pytest.param((*LOSS, "samples"), [5.0, float("-inf")], "malformed", id="inf-sample"),
        pytest.param((*LOSS, "ranks"), [5.0], "loss.ranks has 1 values for 2 ranks", id="ranks"),
        pytest.param((*PEAK, "value"), -1, "peak_memory_bytes.value is -1, a negative number", id="negative"),
        pytest.param((*PEAK, "value"), 10**400, "Number out of range", id="huge"),
        pytest.param((*PEAK, "value"), 20 * GIB + 1, "parts sum to 21474836480, not to the value", id="one-byte-more"),
        pytest.param((*PEAK, "parts"), {"a": 20.5}, "got `float`", id="half-a-byte"),
        pytest.param(
            ("measurement", "readings", "step_time_seconds", "samples"),
            [0.4, -0.4],
            "step_time_seconds.samples[1] is -0.4, a negative number",
            id="negative-time",
        ),
    ],
)
def test_a_malformed_file_is_an_error_that_names_file_and_field(saved, field, value, text):
    """Every field that cannot be what was measured is named, in one sentence, beside the file."""
    change(saved, *field, value=value)
    with pytest.raises(FileError) as raised:
        saved.load(CELL)

    assert text in str(raised.value)
    assert str(saved.path(CELL)) in str(raised.value)


def test_a_loss_may_be_negative(store):
    """A user's own loss can be a log likelihood."""
    negative = baseline(loss=Reading(value=-5.0, samples=[-4.0, -5.0]))
    store.save(negative, replaces=None, consent=CONSENT)

    assert store.load(CELL) == negative


def test_a_link_to_nothing_is_an_error(store):
    """A dangling link is a broken baseline, not a missing one."""
    store.path(CELL).parent.mkdir(parents=True)
    store.path(CELL).symlink_to("gone.json")

    with pytest.raises(FileError, match="is a broken link"):
        store.load(CELL)


def test_a_folder_in_the_place_of_a_file_is_an_error(store):
    """Whatever cannot be read is an error with the system's reason."""
    store.path(CELL).mkdir(parents=True)

    with pytest.raises(FileError, match="cannot be read: Is a directory"):
        store.load(CELL)


def test_an_oom_is_a_baseline(store):
    """Out of memory is an outcome with a baseline like any other."""
    store.save(baseline("oom"), replaces=None, consent=CONSENT)

    assert store.load(CELL).measurement.failure == OOM


@pytest.mark.parametrize(
    "unsound",
    [
        pytest.param(baseline("failed"), id="failed"),
        pytest.param(baseline(loss=Reading(value=float("nan"))), id="nan"),
        pytest.param(baseline(loss=Reading(value=1.0, samples=[float("inf")])), id="inf"),
        pytest.param(with_measurement(BASELINE, world_size=1), id="ranks"),
    ],
)
def test_an_unsound_baseline_is_never_written(saved, unsound):
    """What could not be loaded is not saved, and the file stays as it is."""
    with pytest.raises(FileError, match="is not written: "):
        saved.save(unsound, replaces=BASELINE, consent=CONSENT)

    assert saved.load(CELL) == BASELINE


def test_a_baseline_is_replaced_by_who_has_seen_it(saved):
    """The writer that judged by the file on disk may replace it."""
    saved.save(BETTER, replaces=BASELINE, consent=CONSENT)

    assert saved.load(CELL) == BETTER


@pytest.mark.parametrize(
    ("replaces", "text"), [(None, "was created by another writer"), (BETTER, "was changed by another writer")]
)
def test_the_second_writer_is_told(saved, replaces, text):
    """A writer that has judged by something else than what is on disk loses nothing of the other's."""
    with pytest.raises(FileError, match=text):
        saved.save(BETTER, replaces=replaces, consent=CONSENT)

    assert saved.load(CELL) == BASELINE


def test_a_baseline_that_was_removed_is_not_replaced(store):
    """Whoever deleted the file meanwhile meant it."""
    with pytest.raises(FileError, match="was removed by another writer"):
        store.save(BETTER, replaces=BASELINE, consent=CONSENT)


def test_a_torn_file_is_not_overwritten(saved):
    """Saving over an unreadable file would hide what happened to it."""
    saved.path(CELL).write_bytes(b'{"format": 1')

    with pytest.raises(FileError, match="is not a baseline"):
        saved.save(BETTER, replaces=BASELINE, consent=CONSENT)


def _refused_by_the_system(*_):
    raise OSError(28, "No space left on device")


def test_a_full_disk_leaves_the_old_file(saved, monkeypatch):
    """A write that fails is one sentence, and neither half a file nor clutter remains."""
    monkeypatch.setattr(os, "replace", _refused_by_the_system)
    with pytest.raises(FileError, match="cannot be written: No space left on device"):
        saved.save(BETTER, replaces=BASELINE, consent=CONSENT)

    assert saved.load(CELL) == BASELINE
    assert [path.name for path in saved.path(CELL).parent.iterdir()] == [f"{CELL}.json"]


def _candidate(number: int) -> Baseline:
    return baseline(peak_memory_bytes=memory(GIB + number))


def test_of_many_threads_one_writes(store):
    """Eight threads that all saw no baseline: one file, seven are told."""
    gate, told = threading.Barrier(8), []

    def write(number: int) -> None:
        gate.wait()
        try:
            store.save(_candidate(number), replaces=None, consent=CONSENT)
        except FileError as error:
            told.append(str(error))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(told) == 7
    assert all("was created by another writer" in text for text in told)
    assert store.load(CELL) in [_candidate(number) for number in range(8)]


WRITER = """
import sys
from pathlib import Path
sys.path[:0] = [sys.argv[3], sys.argv[4]]
from gate_samples import CELL, GIB, MACHINE, METRICS, baseline, memory
from perfsuite.errors import FileError
from perfsuite.baselines.ledger import Acceptance
from perfsuite.baselines.store import Store
CONSENT = Acceptance(how='a test', metrics=METRICS)
store, mine = Store(Path(sys.argv[1])), baseline(peak_memory_bytes=memory(GIB + int(sys.argv[2])))
print("ready", flush=True)
sys.stdin.readline()
won = 0
for _ in range(40):
    seen = store.load(CELL)
    try:
        store.save(mine, replaces=seen, consent=CONSENT)
        won += 1
    except FileError as error:
        assert "by another writer" in str(error), error
assert "torch" not in sys.modules
print(won)
"""


def test_two_processes_never_tear_a_file(store):
    """Two processes that write the same baseline over and over leave a whole file of one of them, and no clutter."""
    here = Path(__file__).parents[1] / "support"
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(store.root), str(number), str(here), str(here.parents[1])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    for writer in writers:
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        writer.stdin.write("go\n")
        writer.stdin.flush()
    won = [int(writer.communicate(timeout=60)[0]) for writer in writers]

    assert all(writer.returncode == 0 for writer in writers)
    assert min(won) > 0
    assert store.load(CELL) in [_candidate(0), _candidate(1)]
    assert [path.name for path in store.path(CELL).parent.iterdir()] == [f"{CELL}.json"]


WHOLE = codec.encode(BASELINE)


@st.composite
def mutations(draw):
    """The bytes of a baseline with a few of them replaced, removed or added."""
    content = bytearray(WHOLE)
    for _ in range(draw(st.integers(1, 4))):
        begin = draw(st.integers(0, len(content)))
        end = begin + draw(st.integers(0, 3))
        content[begin:end] = draw(
            st.binary(max_size=3) | st.sampled_from([b"-", b"9", b"null", b"true", b'"', b"e9", b"{"])
        )
    return bytes(content)


@given(mutations())
def test_mutated_bytes_are_a_file_error_or_a_sound_baseline(content):
    """Whatever happens to a file, it is refused in a sentence or it is a baseline of this cell; never none."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        store.path(CELL).parent.mkdir()
        store.path(CELL).write_bytes(content)
        loaded, refusal = None, ""
        try:
            loaded = store.load(CELL)
        except FileError as error:
            refusal = str(error)

    assert (loaded is None) == refusal.startswith(str(store.path(CELL)))
    assert loaded is None or loaded.cell == CELL
    assert loaded is None or codec.decode(codec.encode(loaded), Baseline, "again") == loaded


@pytest.mark.parametrize("value", [0.0, -0.4, float("nan")])
def test_a_run_s_time_that_no_clock_gives_is_refused(saved, value):
    """The pool of times is read with the same care as the measurement."""
    run = TimedRun(date="2026-11-03", machine=MACHINE, versions={}, values={"step_time_seconds": value})

    with pytest.raises(FileError, match=r"times\[0\].values.step_time_seconds is .*, but a time is above 0"):
        saved.save(msgspec.structs.replace(BASELINE, times=[run]), BASELINE, CONSENT)
