"""What is accepted into a baseline, of measurements that no rank has made."""

import dataclasses
import itertools
from typing import Any

import msgspec
import pytest
from gate_samples import CELL, GIB, VERSIONS, measurement, memory, times
from world import BOTH, NEW, OLD, Few, World, measuring, memory_of, seconds, slower_with

from perfsuite.baselines.store import Store
from perfsuite.catalog.cell import parse_cell
from perfsuite.catalog.definitions import Materiality
from perfsuite.errors import FileError
from perfsuite.records.reasons import InWords
from perfsuite.records.sample import Reading
from perfsuite.run.gatekeeper import Gatekeeper, NotAccepted
from perfsuite.run.measuring import unwatched
from perfsuite.run.runner import Runner
from perfsuite.run.trial import Trial
from perfsuite.system import deadline
from perfsuite.system.deadline import check, limit

OTHER = "gpt2_tiny-zero3-cpu_x2"


class Told(Runner):
    """A runner whose launches take these seconds a step, one after another."""

    def __init__(self, *seconds):
        self.catalog, self._seconds = Few(), itertools.cycle(seconds)

    def measure(self, cell, watch=unwatched, times_only=False):
        return measurement(step_time_seconds=times(*[next(self._seconds)] * 3))


@pytest.fixture
def record(tmp_path):
    """Record a baseline from so many launches that take so long; returns the result and the store."""

    def record(*seconds, launches=3):
        store = Store(tmp_path / "baselines")
        runner = Told(*seconds)
        keeper = Gatekeeper(runner=runner, store=store, how=measuring(tmp_path), consent="new", launches=launches)
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
        how = measuring(tmp_path)
        Gatekeeper(runner=Told(0.4), store=store, how=how, consent="new").check(cell)
        result = Gatekeeper(runner=runner, store=store, how=how, consent=consent, reason=reason).check(cell)
        return result, store.load(CELL)

    return accept


class Other(Told):
    """A runner in an environment with another transformers, whose peak is so much larger."""

    def __init__(self, *seconds, more=0):
        super().__init__(*seconds)
        self.more = more

    def measure(self, cell, watch=unwatched, times_only=False):
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


@pytest.mark.parametrize("seconds", [0.5, 2.4])
def test_improved_accepts_no_slower_time_without_a_reason(accept, seconds):
    """A smaller peak would bring a step with it that may be slower. With a reason, the old times stay."""
    with pytest.raises(NotAccepted, match="step time may be worse, and no trial has decided it"):
        accept("improved", Other(seconds, more=-4096))
    result, stored = accept("improved", Other(seconds, more=-4096), reason="less memory")

    assert result.updated
    assert [run.values["step_time_seconds"] for run in stored.times] == [0.4]


class Counting(Few):
    """Two numbers of which a difference matters from 1 % on."""

    def metrics(self, process):
        material = Materiality(share=0.01, because="It is small.")
        metrics = {metric.name: metric for metric in super().metrics(process)}
        peak = dataclasses.replace(metrics["peak_memory_bytes"], materiality=material)
        operators = dataclasses.replace(peak, name="operators", title="operators/step")
        return [*(metrics | {"peak_memory_bytes": peak}).values(), operators]


class Counted(Told):
    """Each step needs 2 % fewer operators than the one before, and 0.9 % more memory."""

    def __init__(self, step):
        super().__init__(0.4)
        self.step = step

    def measure(self, cell, watch=unwatched, times_only=False):
        size = 20 * GIB * (1000 + 9 * self.step) // 1000
        operators = Reading(value=1000 - 20 * self.step)
        peak = memory(size, activations=size - 12 * GIB)
        readings = super().measure(cell).readings | {"peak_memory_bytes": peak, "operators": operators}
        return msgspec.structs.replace(super().measure(cell), readings=readings)


def test_small_steps_beside_something_better_need_a_reason(tmp_path):
    """The second would let the memory get 1.8 % worse, and nobody has said why."""
    store, how = Store(tmp_path / "baselines"), measuring(tmp_path, Counting())

    def accept(step, consent="improved", reason=""):
        keeper = Gatekeeper(runner=Counted(step), store=store, how=how, consent=consent, reason=reason)
        return keeper.check(parse_cell(CELL, Few())).updated

    assert accept(0, consent="new") and accept(1)
    with pytest.raises(NotAccepted, match="but peak memory got worse by what matters, in small steps"):
        accept(2)
    assert accept(2, reason="a larger buffer") and accept(3)


def test_an_open_cell_s_times_are_not_added(accept):
    """Else +30 % is usual after some nights, and +1.5 % a night is never red."""
    result, stored = accept("times", Told(0.9))

    assert result.verdict.status == "open"
    assert len(stored.times) == 1


class InWorld(Told):
    """A runner of this environment, in a world where packages are new."""

    def __init__(self, world, versions=NEW):
        super().__init__(0.4)
        self.world, self.versions, self.warmup = world, versions, 3

    def measure(self, cell, watch=unwatched, times_only=False):
        one = self.world.launch(cell.id, frozenset(self.world.changed) if self.versions == NEW else frozenset())
        return msgspec.structs.replace(one, versions=self.versions, warmup=self.warmup)


@pytest.fixture
def keeper(tmp_path, monkeypatch):
    """``keeper(readings, **options)``: one whose baselines are of the OLD versions, and that now has the NEW ones."""

    def keeper(readings, cells=(CELL,), of_cell=None, **options):
        world = World(readings, BOTH, of_cell or {}).put(monkeypatch)
        store, how = Store(tmp_path / "baselines"), measuring(tmp_path)
        for cell in cells:
            Gatekeeper(runner=InWorld(world, OLD), store=store, how=how, consent="new").check(
                parse_cell(cell, how.catalog)
            )
        world.launched.clear()
        return Gatekeeper(runner=InWorld(world), store=store, how=how, trial=Trial(how), **options), world

    return keeper


def checked(keeper, cell=CELL):
    return keeper.check(parse_cell(cell, keeper.how.catalog))


def test_a_time_that_is_open_waits_for_all_cells(keeper):
    """Its result so far is open, and one launch was made; it is settled when all are."""
    one, world = keeper(slower_with("msgspec"))
    result = checked(one)

    assert (result.verdict.status, one.is_open(CELL), len(world.launched)) == ("open", True, 1)
    [settled] = one.settle()
    assert (settled.verdict.status, one.is_open(CELL)) == ("regressed", False)


def test_cells_of_one_change_are_one_question(keeper):
    """Pairs of both cells, and one other environment."""
    cells = (CELL, OTHER)
    one, world = keeper(slower_with("msgspec"), cells)
    for cell in cells:
        checked(one, cell)
    assert not world.built

    results = list(one.settle())
    assert [(result.measurement.cell, result.verdict.status) for result in results] == [
        (cell, "regressed") for cell in cells
    ]
    assert world.built.count(("msgspec", "packaging")) == 1
    assert list(one.settle()) == []


def test_what_is_red_waits_for_its_cause(keeper):
    """It is red at once."""
    one, _ = keeper(memory_of("packaging"))
    result = checked(one)

    assert (result.verdict.status, one.is_open(CELL)) == ("regressed", True)
    [settled] = one.settle()
    assert settled.verdict.trial.causes[0].changes[0].name == "packaging"


def test_without_a_trial_nothing_waits(keeper):
    """An open time stays open."""
    one, _ = keeper(slower_with("msgspec"))
    one.trial = None
    result = checked(one)

    assert (result.verdict.status, one.is_open(CELL), list(one.settle())) == ("open", False, [])


def test_a_forced_trial_asks_nothing_where_nothing_could_be_compared(keeper):
    """Fewer warm-up steps than the baseline has are incomparable, whatever pairs of launches would say."""
    one, world = keeper(slower_with("msgspec"), always=True)
    one.runner.warmup = 2
    result = checked(one)

    assert (result.verdict.status, one.is_open(CELL), len(world.launched)) == ("incomparable", False, 1)


def test_a_baseline_that_cannot_be_written_after_the_question_is_red(keeper, monkeypatch):
    """The result says why, and the other cells of the question have theirs."""
    one, _ = keeper(slower_with("msgspec", by=0.5), consent="improved", reason="faster", always=True)
    checked(one)

    def refused(*_):
        raise FileError("No space left on device.")

    monkeypatch.setattr(Store, "save", refused)
    monkeypatch.setattr(Gatekeeper, "_consent", lambda *_: "improved")
    monkeypatch.setattr("perfsuite.run.gatekeeper.accepted", lambda *_: one.store.load(CELL))
    [settled] = one.settle()

    assert settled.verdict.status == "failed"
    assert settled.verdict.reason == InWords(message="No space left on device.")


@pytest.mark.parametrize("worse", [lambda new: {}, memory_of("packaging")], ids=["equal", "memory"])
@pytest.mark.parametrize("launches", range(24))
def test_every_cell_has_a_verdict_whenever_the_limit_ends(keeper, worse, launches):
    """Also one that was decided before, which is kept with its times."""
    left: list[int] = [launches]
    begun: list[Any] = []

    def measured(slow):
        def readings(new):
            if begun:
                left[0] -= 1
                if left[0] < 0:
                    begun[0].at = 0.0
                    check()
            return slow(new) | worse(new)

        return readings

    slow, even = measured(slower_with("msgspec", by=1.05)), measured(lambda new: seconds(0.4))
    cells = (CELL, OTHER)
    one, _ = keeper(slow, cells, of_cell={OTHER: even}, always=True)
    for cell in cells:
        checked(one, cell)
    with limit(3600, "the 60 s"):
        begun.append(deadline._INNERMOST.get())
        results = {result.measurement.cell: result.verdict for result in one.settle()}

    assert results.keys() == set(cells)
    assert {verdict.status for verdict in results.values()} <= {"open", "regressed", "ok"}
    if launches == 0:
        assert "ok" not in {verdict.status for verdict in results.values()}
