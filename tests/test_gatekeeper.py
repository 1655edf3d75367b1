"""What is accepted into a baseline, of measurements that no rank has made."""

import itertools

import msgspec
import pytest
from gate_samples import CELL, METRICS, baseline, measurement, memory, times

from perfsuite.catalog.registry import Catalog
from perfsuite.cell import parse_cell
from perfsuite.errors import FileError
from perfsuite.gate.store import Store
from perfsuite.gatekeeper import Gatekeeper
from perfsuite.pytest_session import tell_update
from perfsuite.records import Result, Verdict


class Few(Catalog):
    """With the metrics of the samples alone, and those that tell a slow machine."""

    def metrics(self, process):
        return [*METRICS, *(self.all("metric")[name] for name in ("pace_seconds", "control_seconds"))]


class Hours:
    """A runner of a step that needs so much more memory, in hours when machine, control and pace are so much slower."""

    def __init__(self, *hours):
        self.catalog, self._hours, self.launches = Few(), itertools.chain(hours, itertools.repeat(hours[-1])), 0

    def measure(self, cell, watch, faults):
        more, slower = next(self._hours)
        self.launches += 1
        times_of = {
            name: times(*[seconds * slower] * 3)
            for name, seconds in (("step_time_seconds", 0.4), ("pace_seconds", 0.001), ("control_seconds", 0.02))
        }
        return measurement(peak_memory_bytes=memory(2**30 + more), **times_of)

    def forget_snapshots(self, cell):
        pass


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


@pytest.fixture
def accept(tmp_path):
    """Record a baseline in quiet launches, then hold what these hours give by that consent."""

    def accept(consent, *hours, launches=3):
        store = Store(tmp_path / "baselines")
        for how, runner, count in (("new", Hours((0, 1.0)), 3), (consent, Hours(*hours), launches)):
            keeper = Gatekeeper(runner, store, 0.1, how, "why", count)
            result = keeper.hold(parse_cell(CELL, runner.catalog))
        return result, runner.launches

    return accept


def test_a_slow_hour_is_not_accepted_with_a_regression(accept):
    """Else a step twice as slow would be green in every later hour. All five launches are made to tell."""
    with pytest.raises(FileError, match=r"x2.json is not written: its times are those of a slow hour"):
        accept("regressed", (4096, 2.0))


@pytest.mark.parametrize(
    ("consent", "hours", "launches", "made"),
    [
        ("regressed", [(4096, 1.0)], 3, 3),
        ("regressed", [(4096, 2.0), (4096, 1.0)], 3, 3),
        ("regressed", [(4096, 2.0)], 1, 1),
        ("all", [(4096, 2.0)], 3, 5),
    ],
    ids=["quiet", "slow at first", "exact metrics alone", "by the consent to all"],
)
def test_what_is_accepted_of_a_slow_hour(accept, consent, hours, launches, made):
    """A suspicion beside the regression is resolved by further launches, unless no time will be held."""
    result, count = accept(consent, *hours, launches=launches)

    assert (bool(result.updated), count) == (True, made)


@pytest.mark.parametrize(("launches", "last"), [(1, "  of one launch: holds no time"), (3, "baseline changed: a.json")])
def test_a_baseline_of_one_launch_says_that_it_holds_no_time(launches, last):
    """Below the line that names its file."""
    one = baseline().measurement
    one = msgspec.structs.replace(one, launches=one.launches[:launches])
    verdict = Verdict(cell=CELL, status="ok", headline="")
    result = Result(measurement=one, baseline=baseline(), verdict=verdict, updated="a.json")

    assert tell_update(result, METRICS)[-1] == last
