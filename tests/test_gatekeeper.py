"""What is accepted into a baseline, of measurements that no rank has made."""

import itertools

import msgspec
import pytest
from gate_samples import CELL, METRICS, baseline, measurement, times

from perfsuite.catalog.registry import Catalog
from perfsuite.cell import parse_cell
from perfsuite.errors import FileError
from perfsuite.gate.store import Store
from perfsuite.gatekeeper import Gatekeeper
from perfsuite.pytest_session import tell_update
from perfsuite.records import Result, Verdict


class Told:
    """A runner whose launches take these seconds a step, one after another."""

    def __init__(self, *seconds):
        self.catalog, self._seconds = Catalog(), itertools.cycle(seconds)

    def measure(self, cell, watch, faults):
        return measurement(step_time_seconds=times(*[next(self._seconds)] * 3))

    def forget_snapshots(self, cell):
        pass


@pytest.fixture
def record(tmp_path):
    """Record a baseline from so many launches that take so long; returns the result and the store."""

    def record(*seconds, launches=3):
        store = Store(tmp_path / "baselines")
        runner = Told(*seconds)
        keeper = Gatekeeper(runner, store, 0.1, "new", launches=launches)
        return keeper.hold(parse_cell(CELL, runner.catalog)), store

    return record


def test_launches_that_agree_are_recorded(record):
    """All of them are in the baseline."""
    result, store = record(0.40, 0.41, 0.42)

    assert result.updated == str(store.path(CELL))
    assert len(store.load(CELL).measurement.launches) == 3


def test_a_baseline_that_would_be_unstable_is_not_recorded(record, tmp_path):
    """Recording says so, and not the next run; neither baseline nor ledger is there."""
    with pytest.raises(FileError, match=r"x2.json is not written: its launches spread by 100.0 %.*--perf-launches=1"):
        record(0.1, 0.2, 0.4)

    assert [path for path in tmp_path.rglob("*.json*") if path.is_file()] == []


def test_one_launch_is_recorded_by_choice(record):
    """Nobody knows how wide its launches spread: the exact metrics are held."""
    result, store = record(0.1, 0.2, 0.4, launches=1)

    assert result.updated
    assert len(store.load(CELL).measurement.launches) == 1


@pytest.mark.parametrize(("launches", "last"), [(1, "  of one launch: holds no time"), (3, "baseline changed: a.json")])
def test_a_baseline_of_one_launch_says_that_it_holds_no_time(launches, last):
    """Below the line that names its file."""
    one = baseline().measurement
    one = msgspec.structs.replace(one, launches=one.launches[:launches])
    verdict = Verdict(cell=CELL, status="ok", headline="")
    result = Result(measurement=one, baseline=baseline(), verdict=verdict, updated="a.json")

    assert tell_update(result, METRICS)[-1] == last
