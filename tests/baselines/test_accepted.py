"""Only what the ledger accepted is believed, and a process that is killed at any moment leaves both whole."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import gate_samples as samples
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling import slow_unless

from perfsuite.baselines import ledger
from perfsuite.baselines.accepted import AcceptanceDoubt
from perfsuite.baselines.ledger import Acceptance
from perfsuite.baselines.store import Store
from perfsuite.cli.main import main
from perfsuite.errors import FileError, PerfsuiteError

CONSENT = Acceptance(how="--perf-update=new", metrics=samples.METRICS, reason="first")
OLD = samples.baseline()
NEW = samples.baseline(peak_memory_bytes=samples.memory(19 * samples.GIB))
COMMITTED = Path(__file__).parents[2] / "baselines"
FOLDERS = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "support")]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """One accepted baseline."""
    store = Store(tmp_path / "baselines")
    store.save(OLD, None, CONSENT)
    return store


def doubts(store: Store) -> list[AcceptanceDoubt]:
    return [one.doubt for one in store.doubtful()]


def edit(store: Store, change) -> None:
    """Change the baseline's file by hand."""
    path = store.path(samples.CELL)
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record))


def test_what_was_accepted_is_believed(store: Store) -> None:
    """New and changed."""
    assert doubts(store) == []
    store.save(NEW, OLD, CONSENT)
    assert doubts(store) == []
    store.remove(NEW, CONSENT)
    assert doubts(store) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda record: record["measurement"]["readings"]["step_time_seconds"].update(value=8.2),
        lambda record: record["measurement"]["readings"]["peak_memory_bytes"].update(value=1),
        lambda record: record.update(date="2026-11-03"),
        lambda record: record["measurement"]["machine"].update(identity="another"),
    ],
    ids=["a time", "memory", "the date", "the machine"],
)
def test_an_edited_number_is_found(store: Store, change, capsys: pytest.CaptureFixture[str]) -> None:
    """Also one that no rule would see; the check fails and names the file."""
    edit(store, change)

    assert doubts(store) == [AcceptanceDoubt.EDITED]
    assert main(["baseline", "show", "--check", "--baselines", str(store.root)]) == 1
    assert f"{samples.CELL}.json is not what the ledger accepted" in capsys.readouterr().out


def test_a_file_without_a_line_is_found(store: Store) -> None:
    """It was copied there."""
    other = samples.CELL.replace("zero3", "zero2")
    store.path(other).write_bytes(store.path(samples.CELL).read_bytes())

    assert doubts(store) == [AcceptanceDoubt.UNKNOWN]


def test_a_file_that_was_removed_by_hand_is_found(store: Store) -> None:
    """A removal by consent has a line."""
    store.path(samples.CELL).unlink()

    assert doubts(store) == [AcceptanceDoubt.GONE]


@pytest.mark.parametrize("line", ["new", "adopted"])
def test_a_removed_file_keeps_the_last_line(store: Store, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    """No process was killed: the check is red, the ledger is unchanged, and the cell stays known."""
    other = samples.CELL.replace("zero3", "zero2")
    named = msgspec.structs.replace(OLD.measurement, cell=other)
    store.save(msgspec.structs.replace(OLD, cell=other, measurement=named), None, CONSENT)
    if line == "adopted":
        store.adopt(store.path(other), CONSENT)
    ledger_before = store.ledger.read_bytes()
    store.path(other).unlink()

    assert main(["baseline", "show", "--check", "--baselines", str(store.root)]) == 1
    assert "was taken back" not in capsys.readouterr().out
    assert store.ledger.read_bytes() == ledger_before and store.is_known(other)


def test_nothing_to_check_is_no_success(tmp_path: Path) -> None:
    """An empty folder, or a wrong one."""
    (tmp_path / "baselines").mkdir()

    assert main(["baseline", "show", "--check", "--baselines", str(tmp_path / "baselines")]) == 1


def test_a_reason_accepts_files_as_they_are(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    """Without one they are named."""
    edit(store, lambda record: record.update(date="2026-11-03"))
    words = ["baseline", "accept", "--baselines", str(store.root)]
    assert main(words) == 0
    assert "1 baseline changed by hand." in capsys.readouterr().out and len(doubts(store)) == 1

    assert main([*words, "--reason", "a move"]) == 0
    assert doubts(store) == []
    assert ledger.read(store.ledger)[0][-1].reason == "a move"


def test_the_committed_baselines_are_accepted() -> None:
    """Those of this repository, as `baseline show --check` says in the gate."""
    assert Store(COMMITTED).doubtful() == []


def test_a_cell_that_the_ledger_knows_is_known(store: Store) -> None:
    """So that a deleted baseline is not simply new."""
    store.path(samples.CELL).unlink()

    assert store.is_known(samples.CELL)
    assert not store.is_known(samples.CELL.replace("zero3", "zero2"))


def test_a_line_that_was_cut_is_taken_back(store: Store) -> None:
    """It was never whole, so nothing was accepted."""
    whole = store.ledger.read_bytes()
    store.ledger.write_bytes(whole + whole[:40])

    assert "was cut off by a process that was killed" in store.recover()
    assert store.ledger.read_bytes() == whole
    assert store.recover() == ""


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path[:0] = {tests!r}
from test_accepted import CONSENT, NEW, OLD
from perfsuite.baselines.store import Store
from perfsuite.records import codec
store = Store(Path("baselines"))
store.save(OLD, None, CONSENT)
codec.write_bytes = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
store.save(NEW, OLD, CONSENT)
"""


def test_the_next_run_takes_back_an_acceptance_that_never_happened(pytester: pytest.Pytester) -> None:
    """SIGKILL between the two writes: the line is there, the file is the one before. pytest says what it did."""
    test = f"import pytest\n@pytest.mark.perf_cell({samples.CELL!r})\ndef test_it(perf_cell): perf_cell.check()"
    pytester.makepyfile(test_it=test)
    pytester.makeini("[pytest]")
    store = Store(pytester.path / "baselines")
    command = [sys.executable, "-c", KILLED.format(tests=FOLDERS)]
    killed = subprocess.run(command, cwd=pytester.path, check=False).returncode
    found = doubts(store)
    first, second = (pytester.runpytest_inprocess("--perf", "-k", "nothing").stdout.str() for _ in range(2))

    assert (killed, found) == (-9, [AcceptanceDoubt.EDITED])
    assert f"the last line accepts {samples.CELL}, which never happened: its process was killed." in first
    assert doubts(store) == [] and store.load(samples.CELL) == OLD
    assert "never happened" not in second


def test_both_ledgers_are_looked_at(store: Store) -> None:
    """Cells of GPUs are in the ledger of all kernels, also if a run's CPU kernels have one of their own."""
    other = Store(store.root, "avx512")
    whole = store.ledger.read_bytes()
    store.ledger.write_bytes(whole + whole[:40])
    other.ledger.write_bytes(whole[:40])
    said = other.recover().splitlines()

    assert [line.partition(":")[0] for line in said] == [str(other.ledger), str(store.ledger)]
    assert (store.ledger.read_bytes(), other.ledger.read_bytes()) == (whole, b"")


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ends a process at its n-th call."""
    if shutil.which("g++") is None:
        pytest.skip("g++ is needed")
    library = tmp_path_factory.mktemp("shim") / "killed_at.so"
    source = Path(__file__).parents[1].joinpath("support", "killed_at.cpp")
    subprocess.run(["g++", "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library


ACTIONS = {
    "new": "store.save(OTHER, None, CONSENT)",
    "changed": "store.save(NEW, OLD, CONSENT)",
    "removed": "store.remove(OLD, CONSENT)",
    "first": "Store(Path(sys.argv[1]).parent / 'another').save(OLD, None, CONSENT)",
}
SCRIPT = """
import ctypes, os, sys
from pathlib import Path
sys.path[:0] = {tests!r}
import gate_samples as samples, msgspec
from test_accepted import CONSENT, NEW, OLD
from perfsuite.baselines.store import Store
CELL = samples.CELL.replace("zero3", "zero2")
OTHER = msgspec.structs.replace(OLD, cell=CELL, measurement=msgspec.structs.replace(OLD.measurement, cell=CELL))
store = Store(Path(sys.argv[1]))
ctypes.CDLL(None).setenv(b"KILL_AT", sys.argv[2].encode(), 1)
{action}
os._exit(0)
"""


@pytest.mark.parametrize("action", slow_unless({"changed", "removed"}.__contains__, ACTIONS))
def test_a_crash_at_every_call_leaves_both_whole(store: Store, shim: Path, action: str, tmp_path: Path) -> None:
    """For every n: the next start finds the old or the new baseline, with a ledger that says which."""
    script = SCRIPT.format(tests=FOLDERS, action=ACTIONS[action])
    variables = {**os.environ, "LD_PRELOAD": str(shim)}
    variables.pop("KILL_AT", None)
    for number in range(1, 60):
        here = tmp_path / f"copy{number}" / "baselines"
        shutil.copytree(store.root, here)
        command = [sys.executable, "-c", script, str(here), str(number)]
        done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
        assert done.returncode in (0, 9), done.stderr
        after = Store(here.parent / "another" if action == "first" else here)
        after.recover()

        assert doubts(after) == [], number
        assert ledger.read(after.ledger)[1] == ""
        for path in after.all():
            assert after.load(path.stem) is not None
        if done.returncode == 0:
            break
    assert number > 4
    assert done.returncode == 0


def fuzz(store: Store, at: int, byte: int, kind: str) -> None:
    """A changed byte of a baseline is found, or the file is refused; a changed ledger raises nothing but our errors."""
    path = store.path(samples.CELL) if kind == "baseline" else store.ledger
    whole = path.read_bytes()
    at %= len(whole)
    changed = whole[:at] + bytes([byte]) + whole[at + 1 :]
    path.write_bytes(changed)
    try:
        if kind == "baseline" and changed != whole:
            assert doubts(store) == [AcceptanceDoubt.EDITED]
        elif kind == "ledger":
            ledger.read(store.ledger)
            store.doubtful()
        store.load(samples.CELL)
    except PerfsuiteError:
        pass
    finally:
        path.write_bytes(whole)


KINDS = st.sampled_from(["baseline", "ledger"])


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """One accepted baseline, for all examples."""
    store = Store(tmp_path_factory.mktemp("fuzz") / "baselines")
    store.save(OLD, None, CONSENT)
    return store


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 255), KINDS)
def test_fuzzed_files(kept: Store, at: int, byte: int, kind: str) -> None:
    """A sample of the slow test."""
    fuzz(kept, at, byte, kind)


@pytest.mark.slow
@settings(max_examples=20_000, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 255), KINDS)
def test_twenty_thousand_fuzzed_files(kept: Store, at: int, byte: int, kind: str) -> None:
    """Half of them baselines, half of them ledgers."""
    fuzz(kept, at, byte, kind)


def test_a_damaged_ledger_is_no_acceptance(store: Store) -> None:
    """The check cannot be green with it."""
    store.ledger.write_text("nonsense\n")

    with pytest.raises(FileError, match=r"ledger\.jsonl:1 is not a ledger entry"):
        store.doubtful()
    assert main(["baseline", "show", "--check", "--baselines", str(store.root)]) == 2
