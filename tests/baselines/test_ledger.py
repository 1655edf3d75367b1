"""The ledger: every change of a baseline is one line, none is lost, and small accepted steps add up."""

import contextlib
import json
import os
import subprocess
import threading
from pathlib import Path

import msgspec
import pytest
from gate_samples import CELL, ELSEWHERE, GIB, MACHINE, METRICS, baseline, memory, times

from perfsuite.baselines import ledger
from perfsuite.baselines.drift import drifts
from perfsuite.baselines.ledger import Acceptance, magnitudes
from perfsuite.baselines.store import Store
from perfsuite.errors import FileError
from perfsuite.records import codec
from perfsuite.records.formats import FORMAT
from perfsuite.records.sample import Reading
from perfsuite.show.text.trial_words import text_of_change

CONSENT = Acceptance(how="--perf-update=regressed", metrics=METRICS, reason="a new kernel", commit="def")
PEAK = "peak_memory_bytes"


def peak(gib: float):
    """A baseline with that peak."""
    return baseline(peak_memory_bytes=memory(int(gib * GIB)))


def versions(record, **changed):
    """The baseline with other library versions."""
    measured = record.measurement
    return msgspec.structs.replace(
        record, measurement=msgspec.structs.replace(measured, versions=measured.versions | changed)
    )


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "baselines")


def accept(store, *some):
    """Save one after another, each in place of the one before."""
    for old, new in zip([None, *some], some, strict=False):
        store.save(new, old, CONSENT)


def entries(store):
    found, problem = ledger.read(store.ledger)

    assert problem == ""
    return found


def test_every_change_is_one_line(store):
    """New, changed and removed, in order, with consent, reason and commit."""
    accept(store, peak(20), peak(21))
    store.remove(peak(21), CONSENT)
    told = [(entry.cell, entry.change, entry.consent, entry.reason, entry.commit) for entry in entries(store)]

    common = (CONSENT.how, CONSENT.reason)
    assert told == [
        (CELL, "new", *common, "abc"),
        (CELL, "changed", *common, "abc"),
        (CELL, "removed", *common, "def"),
    ]
    assert store.load(CELL) is None


def test_the_magnitudes_of_every_held_metric_stand_in_the_line(store):
    """Old, new and ratio of exact, close and timed metrics; what is only shown is left out."""
    accept(store, peak(20), peak(21))
    last = entries(store)[-1].metrics

    assert set(last) == {PEAK, "step_time_seconds", "tokens", "loss"}
    assert (last[PEAK].old, last[PEAK].new, last[PEAK].ratio) == (20 * GIB, 21 * GIB, 1.05)
    assert last["loss"].ratio == 1.0


def test_the_versions_that_changed_stand_in_the_line(store):
    """What may be to blame is named, and nothing else."""
    accept(store, peak(20), versions(peak(21), transformers="5.23.0"))

    assert [text_of_change(one) for one in entries(store)[-1].changed] == ["transformers 5.22.0 -> 5.23.0"]


@pytest.mark.parametrize(
    ("old", "new", "ratio"), [(0, 0, 1.0), (0, 5, None), (5, 0, None), (-2.0, 3.0, None), (2, 3, 1.5)]
)
def test_a_ratio_is_told_where_there_is_one(old, new, ratio):
    """Zero and a change of sign have none."""
    before, after = (baseline(loss=Reading(value=value)).measurement for value in (old, new))

    assert magnitudes(before, after, METRICS)["loss"].ratio == ratio


@pytest.mark.parametrize("machine", [ELSEWHERE, msgspec.structs.replace(MACHINE, driver="570.86")])
def test_a_time_of_another_machine_has_no_ratio(machine):
    """It is another machine's time, or another driver's, and no drift; memory is memory everywhere."""
    found = magnitudes(baseline().measurement, baseline(machine=machine).measurement, METRICS)

    assert found["step_time_seconds"].ratio is None
    assert found[PEAK].ratio == 1.0


def test_a_torn_last_line_is_named_and_the_rest_is_read(store):
    """File and line; the lines before it are all there."""
    accept(store, peak(20), peak(21))
    whole = store.ledger.read_bytes()
    store.ledger.write_bytes(whole + b'{"format": 1, "da')
    found, problem = ledger.read(store.ledger)

    assert len(found) == 2
    assert problem == f"{store.ledger}:3 is torn: the line has no line end."


def test_a_bad_line_in_the_middle_takes_no_other_along(store):
    """It is named with its field; the lines around it are read."""
    accept(store, peak(20), peak(21))
    first, second = store.ledger.read_bytes().splitlines(keepends=True)
    store.ledger.write_bytes(first + b'{"format": 1, "surprise": 2}\n' + second)
    found, problem = ledger.read(store.ledger)

    assert [entry.change for entry in found] == ["new", "changed"]
    assert problem.startswith(f"{store.ledger}:2 is not a ledger entry: ") and "surprise" in problem


def test_a_newer_line_asks_to_upgrade(store):
    """A line of a later perfsuite is distinguished from a broken one."""
    accept(store, peak(20))
    line = json.loads(store.ledger.read_bytes()) | {"format": FORMAT + 1, "surprise": 2}
    store.ledger.write_text(json.dumps(line) + "\n")

    assert f"ledger.jsonl:1 has format {FORMAT + 1}, written by a newer perfsuite" in ledger.read(store.ledger)[1]


def test_the_ledger_of_this_repository_is_read():
    """All of its lines have their changes as records."""
    entries, problems = ledger.read(Path(__file__).parents[2] / "baselines" / ledger.NAME)

    assert not problems
    assert {change.name for entry in entries for change in entry.changed} >= {"torch", "cpu kernels"}


def test_nothing_changes_while_the_ledger_is_torn(store):
    """A change that cannot be recorded is not made, and the torn line stays for repair."""
    accept(store, peak(20))
    torn = store.ledger.read_bytes() + b'{"format"'
    store.ledger.write_bytes(torn)
    with pytest.raises(FileError, match=r"ledger.jsonl:2 is torn.*Nothing was changed"):
        store.save(peak(21), peak(20), CONSENT)

    assert store.load(CELL) == peak(20)
    assert store.ledger.read_bytes() == torn


def _full(*_):
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("broken", ["replace", "write"])
@pytest.mark.parametrize("known", [True, False], ids=["second line", "first line"])
def test_a_full_disk_leaves_baseline_and_ledger(store, monkeypatch, broken, known):
    """Neither is changed without the other, and no clutter remains."""
    before = peak(20) if known else None
    accept(store, *([peak(20)] if known else []))
    lines = store.ledger.read_bytes() if known else None
    with monkeypatch.context() as patched:
        patched.setattr(os, broken, _full)
        with pytest.raises(FileError, match="No space left on device"):
            store.save(peak(21), before, CONSENT)

    assert store.load(CELL) == before
    assert (store.ledger.read_bytes() if store.ledger.exists() else None) == lines
    assert not list(store.root.rglob("*.part"))


def test_a_line_that_went_in_half_is_taken_back(store, monkeypatch):
    """A disk that is full in the middle of the line leaves no half of it."""
    accept(store, peak(20))
    whole, write = store.ledger.read_bytes(), os.write
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", lambda handle, line: write(handle, line[:40]))
        with pytest.raises(FileError, match="only 40 of"):
            store.save(peak(21), peak(20), CONSENT)

    assert store.ledger.read_bytes() == whole


def test_what_was_removed_by_another_is_not_removed_again(store):
    """Only the baseline that was read is removed."""
    accept(store, peak(20))
    with pytest.raises(FileError, match="was changed by another writer"):
        store.remove(peak(21), CONSENT)

    assert store.load(CELL) == peak(20)
    assert len(entries(store)) == 1


def test_many_writers_lose_no_line(store):
    """Eight threads with a cell each: eight whole lines."""
    cells = [f"t5_tiny-zero3-cpu_x2-b{number}" for number in range(3, 11)]

    def write(cell: str) -> None:
        one = baseline()
        store.save(
            msgspec.structs.replace(one, cell=cell, measurement=msgspec.structs.replace(one.measurement, cell=cell)),
            None,
            CONSENT,
        )

    threads = [threading.Thread(target=write, args=(cell,)) for cell in cells]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(entry.cell for entry in entries(store)) == sorted(cells)


def test_another_writer_waits(store):
    """Its line is not taken back with that of a writer that failed."""
    first, second = (
        ledger.entry_of(None, msgspec.structs.replace(baseline(), cell=cell), CONSENT) for cell in ("a", "b")
    )

    def write() -> None:
        with ledger.entered(store.ledger, second):
            pass

    other = threading.Thread(target=write)
    with contextlib.suppress(KeyboardInterrupt), ledger.entered(store.ledger, first):
        other.start()
        other.join(0.2)
        raise KeyboardInterrupt
    other.join()

    assert [entry.cell for entry in entries(store)] == ["b"]


def drift(store, metric=PEAK):
    return next(one for one in drifts(entries(store)) if one.metric == metric)


def test_small_steps_add_up(store):
    """Five times 5 % are 27.6 % altogether."""
    sizes = [20 * 1.05**power for power in range(6)]
    accept(store, *map(peak, sizes))
    found = drift(store)

    assert found.product == pytest.approx(1.05**5, rel=1e-6)
    assert (found.accepted, found.gaps) == (5, 0)
    assert (found.first, found.last) == (20 * GIB, int(sizes[-1] * GIB))


def test_a_way_there_and_back_is_no_drift(store):
    """The product is 1 where the metric is what it was."""
    accept(store, peak(20), peak(30), peak(20))

    assert drift(store).product == pytest.approx(1.0)


def test_a_baseline_that_is_recorded_anew_begins_again(store):
    """What was removed has no history that the next one inherits."""
    accept(store, peak(20), peak(30))
    store.remove(peak(30), CONSENT)
    accept(store, peak(40))

    assert (drift(store).product, drift(store).first, drift(store).accepted) == (1.0, 40 * GIB, 0)


def test_a_removed_baseline_has_no_drift(store):
    """Nothing is held to it any more."""
    accept(store, peak(20), peak(30))
    store.remove(peak(30), CONSENT)

    assert drifts(entries(store)) == []


def test_a_time_of_another_machine_begins_again(store):
    """Its drift is counted from the machine's first time; the memory's goes on."""
    slow = times(*[0.5] * 6)
    accept(store, peak(20), peak(21), baseline(machine=ELSEWHERE, step_time_seconds=slow))

    assert (drift(store, "step_time_seconds").first, drift(store, "step_time_seconds").product) == (0.5, 1.0)
    assert drift(store).product == pytest.approx(1.0)


def test_a_change_past_the_ledger_is_a_gap(store):
    """A baseline that was edited by hand between two accepted changes shows as a gap."""
    accept(store, peak(20))
    codec.write(store.path(CELL), peak(30))
    store.save(peak(31), peak(30), CONSENT)

    assert drift(store).gaps == 1


def _git(folder, *arguments):
    git = ["git", "-c", "user.name=me", "-c", "user.email=me@example.org", *arguments]
    return subprocess.run(git, cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("accepted_before", [True, False])
def test_git_keeps_the_acceptances_of_both_branches(tmp_path, accepted_before):
    """In a repository that has nothing but what the acceptances wrote, and even if each branch has the first one."""
    store, other = Store(tmp_path / "baselines"), "gpt2_tiny-fsdp2-cpu_x2"
    _git(tmp_path, "init", "--quiet", "--initial-branch=main")
    if accepted_before:
        accept(store, peak(19))
    (tmp_path / "README").write_text("")
    _git(tmp_path, "add", ".")
    _git(tmp_path, "commit", "--quiet", "-m", "first")
    _git(tmp_path, "switch", "--quiet", "-c", "theirs")
    store.save(peak(20), peak(19) if accepted_before else None, CONSENT)
    _git(tmp_path, "add", ".")
    _git(tmp_path, "commit", "--quiet", "-m", "theirs")
    _git(tmp_path, "switch", "--quiet", "main")
    ours = msgspec.structs.replace(peak(21), cell=other)
    ours = msgspec.structs.replace(ours, measurement=msgspec.structs.replace(ours.measurement, cell=other))
    store.save(ours, None, CONSENT)
    _git(tmp_path, "add", ".")
    _git(tmp_path, "commit", "--quiet", "-m", "ours")
    _git(tmp_path, "merge", "--quiet", "theirs")

    assert {entry.cell for entry in entries(store)} == {CELL, other}
    assert len(entries(store)) == 2 + accepted_before


def test_the_attributes_of_a_user_stay(tmp_path):
    """One line is added, once; a rule for ledgers that is there is the user's own."""
    (tmp_path / ".gitattributes").write_text("*.json -diff")
    ledger.let_git_merge(tmp_path)
    ledger.let_git_merge(tmp_path)

    assert (tmp_path / ".gitattributes").read_text() == "*.json -diff\n" + ledger.UNION

    (tmp_path / ".gitattributes").write_text("ledger.jsonl -merge\n")
    ledger.let_git_merge(tmp_path)

    assert (tmp_path / ".gitattributes").read_text() == "ledger.jsonl -merge\n"
