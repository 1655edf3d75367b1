"""Alarms over cells: one question between the environments of two rungs."""

import dataclasses
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
from test_ladder import _ladder
from world import Few, World, seconds

from perfsuite.environments.environments import Environment
from perfsuite.errors import UsageError
from perfsuite.features.ladder import asv, confirm
from perfsuite.features.ladder.ladder import Ladder, suite_folder
from perfsuite.features.ladder.series_steps import SeriesStep
from perfsuite.records.verdict import Status
from perfsuite.run.question import Question

CELLS = ["gpt2_tiny-ddp-cpu_x2", "t5_tiny-ddp-cpu_x2", "llama_tiny-ddp-cpu_x2"]
SLOWER, BROKEN, SAME = CELLS


def alarm(cell: str, series: str = "step_time", old: float = 0.01, new: float = 0.02) -> SeriesStep:
    """That of a launched series between rungs 1 and 2."""
    noisy = series != "failures"
    return SeriesStep((f"series.Measured.track_{series}", repr(cell)), noisy, "1", "2", old, new)


FAILS = alarm(BROKEN, "failures", 0, 1)


def steps_of(by: float) -> Any:
    """Readings with noise whose step is slower at rung 2."""
    return lambda new: seconds(0.01 * (1 + by * bool(new)) * (1 + random.gauss(0, 0.005)))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> World:
    """One cell is slower with lib 2, one fails, and one is as before. asv runs nothing."""
    random.seed(0)
    here = World(steps_of(0.3), ["lib"])
    here.of_cell = {SAME: steps_of(0.0), BROKEN: lambda new: {"dies": None} if new else seconds(0.01)}
    here.put(monkeypatch)

    def with_releases(texts: tuple[str, ...]) -> Environment:
        here.built.append(tuple(texts))
        return Environment(overrides=() if texts == ("lib==2",) else (("lib", ""),))

    monkeypatch.setattr(confirm, "with_releases", with_releases)
    monkeypatch.setattr(confirm, "Catalog", Few)
    monkeypatch.setattr(asv, "run", lambda *_, **__: pytest.fail("asv ran again"))
    monkeypatch.chdir(tmp_path)
    return here


@pytest.fixture
def ladder(tmp_path: Path) -> Ladder:
    """Of lib 1 and 2, with the suite of cells."""
    made = _ladder(tmp_path, inherit=True)
    definition = msgspec.structs.replace(made.definition, suite=str(suite_folder("cells")))
    return msgspec.structs.replace(made, definition=definition)


def test_alarms_over_cells_are_one_question(world: World, ladder: Ladder, tmp_path: Path) -> None:
    """Their environments are built once; times are judged by their pairs, a failure by one launch of each side."""
    alarms = [alarm(SLOWER), alarm(SAME), FAILS]
    refused = confirm.confirm(tmp_path, ladder, alarms)
    checks = [confirm.known(tmp_path, step) for step in alarms]

    assert refused == {}
    assert world.built == [("lib==1",), ("lib==2",)]
    assert [check and check.confirmed for check in checks] == [True, False, True]
    assert [check and check.line and check.line.status for check in checks] == [Status.REGRESSED, Status.OK, None]
    assert len([launch for launch in world.launched if launch.cell == BROKEN]) == 2


def test_the_recorded_direction_must_be_there(world: World, ladder: Ladder, tmp_path: Path) -> None:
    """A cell that was recorded as faster, and is slower, is not confirmed."""
    faster = alarm(SLOWER, old=0.02, new=0.01)
    confirm.confirm(tmp_path, ladder, [faster])
    check = confirm.known(tmp_path, faster)

    assert check and check.line and check.line.status == Status.REGRESSED
    assert not check.confirmed


def test_a_checked_alarm_is_not_asked_again(world: World, ladder: Ladder, tmp_path: Path) -> None:
    """Nothing is built for it."""
    confirm.confirm(tmp_path, ladder, [FAILS])
    count = len(world.launched)
    confirm.confirm(tmp_path, ladder, [FAILS])

    assert len(world.launched) == count > 0


@pytest.mark.usefixtures("world")
def test_a_rung_that_cannot_be_built_refutes_nothing(
    ladder: Ladder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The alarm stays unchecked, with the reason."""

    def offline(texts: tuple[str, ...]) -> Environment:
        raise UsageError("the index cannot be reached")

    monkeypatch.setattr(confirm, "with_releases", offline)
    refused = confirm.confirm(tmp_path, ladder, [FAILS])

    assert refused == {FAILS: "the index cannot be reached"}
    assert confirm.known(tmp_path, FAILS) is None


@pytest.mark.usefixtures("world")
def test_a_cell_without_a_time_is_no_answer(ladder: Ladder, tmp_path: Path) -> None:
    """It was slower, and now it fails: that says nothing about its time."""
    step = alarm(BROKEN)
    refused = confirm.confirm(tmp_path, ladder, [step])

    assert list(refused) == [step]
    assert f"{BROKEN}, 1 and 2: " in refused[step]


@pytest.mark.usefixtures("world")
def test_questions_share_the_error_rate(ladder: Ladder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many rungs have alarms, a publishing is wrong as rarely."""
    shares = []

    @dataclasses.dataclass
    class Told(Question):
        def __post_init__(self) -> None:
            super().__post_init__()
            shares.append(self.share)

    monkeypatch.setattr(confirm, "Question", Told)
    confirm.confirm(tmp_path, ladder, [FAILS, dataclasses.replace(FAILS, old_rung="2", new_rung="1")])

    assert shares == [0.5, 0.5]


def test_variables_of_the_ladder_reach_the_ranks(
    world: World, ladder: Ladder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What --set gives the rungs is set on both sides."""
    asked = []

    @dataclasses.dataclass
    class Told(Question):
        def __post_init__(self) -> None:
            super().__post_init__()
            asked.extend([dict(side.environment.overrides) for side in (self.a, self.b)])

    monkeypatch.setattr(confirm, "Question", Told)
    definition = msgspec.structs.replace(ladder.definition, variables={"OMP_NUM_THREADS": "1"})
    confirm.confirm(tmp_path, msgspec.structs.replace(ladder, definition=definition), [FAILS])

    assert [overrides["OMP_NUM_THREADS"] for overrides in asked] == ["1", "1"]


@pytest.mark.usefixtures("world")
def test_a_series_of_that_name_in_another_suite_is_no_cell(tmp_path: Path) -> None:
    """A user's own suite may have a class Measured too."""
    assert not confirm.is_checkable(_ladder(tmp_path, inherit=True), alarm(SLOWER))
