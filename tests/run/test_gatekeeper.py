"""What is accepted into a baseline, of measurements that no rank has made."""

import itertools

import msgspec
import pytest
from gate_samples import CELL, GIB, METRICS, VERSIONS, measurement, memory, times

from perfsuite.baselines.store import Store
from perfsuite.catalog.cell import parse_cell
from perfsuite.catalog.registry import Catalog
from perfsuite.run.gatekeeper import Gatekeeper, unwatched
from perfsuite.run.runner import Runner


class Few(Catalog):
    """With the metrics of the samples alone."""

    def metrics(self, process):
        return list(METRICS)


class Told(Runner):
    """A runner whose launches take these seconds a step, one after another."""

    def __init__(self, *seconds):
        self.catalog, self._seconds = Few(), itertools.cycle(seconds)

    def measure(self, cell, watch=unwatched, faults=(), times_only=False):
        return measurement(step_time_seconds=times(*[next(self._seconds)] * 3))


@pytest.fixture
def record(tmp_path):
    """Record a baseline from so many launches that take so long; returns the result and the store."""

    def record(*seconds, launches=3):
        store = Store(tmp_path / "baselines")
        runner = Told(*seconds)
        keeper = Gatekeeper(runner, store, consent="new", launches=launches)
        return keeper.check(parse_cell(CELL, runner.catalog)), store

    return record


def test_launches_that_agree_are_recorded(record):
    """All of them are in the baseline."""
    result, store = record(0.40, 0.41, 0.42)

    assert result.updated == str(store.path(CELL))
    assert len(store.load(CELL).measurement.launches) == 3


def test_one_launch_is_recorded_by_choice(record):
    """Nothing says that its exact metrics repeat themselves."""
    result, store = record(0.1, 0.2, 0.4, launches=1)

    assert result.updated
    assert len(store.load(CELL).measurement.launches) == 1


@pytest.fixture
def accept(tmp_path):
    """Record a baseline, then hold what this runner gives by that consent; returns the result and what is stored."""

    def accept(consent, runner, reason=""):
        store = Store(tmp_path / "baselines")
        cell = parse_cell(CELL, runner.catalog)
        Gatekeeper(Told(0.4), store, consent="new").check(cell)
        result = Gatekeeper(runner, store, consent=consent, reason=reason).check(cell)
        return result, store.load(CELL)

    return accept


class Other(Told):
    """A runner in an environment with another transformers, whose peak is so much larger."""

    def __init__(self, *seconds, more=0):
        super().__init__(*seconds)
        self.more = more

    def measure(self, cell, watch=unwatched, faults=(), times_only=False):
        one = super().measure(cell)
        readings = one.readings | {"peak_memory_bytes": memory(20 * GIB + self.more, activations=8 * GIB)}
        return msgspec.structs.replace(one, readings=readings, versions=VERSIONS | {"transformers": "5.23.0"})


def test_times_of_a_green_run_are_added(accept):
    """The nightly consent: the measurement stays, the pool grows by one run, without a reason."""
    result, stored = accept("times", Told(0.42))

    assert result.updated
    assert [run.values["step_time_seconds"] for run in stored.times] == [0.4, 0.42]
    assert stored.measurement.readings["step_time_seconds"].value == 0.4


def test_faster_times_of_another_environment_need_a_reason(accept):
    """A faster library ratchets the baseline only by consent that says why."""
    result, stored = accept("times", Other(0.1))

    assert not result.updated
    assert [run.values["step_time_seconds"] for run in stored.times] == [0.4]


def test_times_of_another_environment_begin_anew_with_a_reason(accept):
    """Runs of two environments are never one pool."""
    result, stored = accept("times", Other(0.1), reason="faster attention")

    assert result.updated
    assert [run.values["step_time_seconds"] for run in stored.times] == [0.1]


def test_accepting_memory_accepts_no_time(accept):
    """The exact metrics are the new ones, the times those of before: faster ones would be bundled with them."""
    result, stored = accept("regressed", Other(0.1, more=4096), reason="a larger buffer")

    assert result.updated
    assert stored.measurement.readings["peak_memory_bytes"].value == 20 * GIB + 4096
    assert [run.values["step_time_seconds"] for run in stored.times] == [0.4]


def test_improved_accepts_no_faster_time(accept):
    """A cell whose time alone is better is green, and the consent to improvements changes nothing."""
    result, stored = accept("improved", Other(0.01))

    assert (result.updated, len(stored.times)) == ("", 1)


def test_an_open_cell_s_times_are_not_added(accept):
    """Else +30 % is usual after some nights, and +1.5 % a night is never red."""
    result, stored = accept("times", Told(0.9))

    assert result.verdict.status == "machine"
    assert len(stored.times) == 1
