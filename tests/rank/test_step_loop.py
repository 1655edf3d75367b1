"""One loop makes the steps of a cell and of a script: when its meters open and close, and when phases begin."""

import contextlib
from types import SimpleNamespace
from typing import Any, cast

import pytest

from perfsuite.errors import RankError
from perfsuite.rank.garbage import Garbage
from perfsuite.rank.meter import Meter
from perfsuite.rank.phases import StepPhases
from perfsuite.rank.steps import step_loop
from perfsuite.rank.trainer import StepOutcome, Trainer
from perfsuite.records.step_kinds import MOST_OVERFLOWS, StepKind


class Noted:
    """A session, a trainer and two meters that note what happens, in order."""

    def __init__(self, trainer: Any, skips: int = 0) -> None:
        self.events: list[str] = []
        phases = StepPhases()
        phases.listen(lambda phase: self.events.append(f"mark {phase}"))
        job = SimpleNamespace(turns=None, steps=10, unfenced=True)
        self.session: Any = SimpleNamespace(job=job, world_size=1, mark=phases.mark, garbage=Garbage())
        self.trainer: Any = trainer(self.session, cast("Any", None))
        self.trainer.events, self.trainer.skips = self.events, skips
        self.meters = [NotingMeter(self.session, name, self.events) for name in ("outer", "inner")]

    def loop(self, *kinds: StepKind) -> Any:
        return step_loop(self.session, self.trainer, self.meters, kinds)


class NotingMeter(Meter):
    def __init__(self, session: Any, name: str, events: list[str]) -> None:
        super().__init__(session)
        self.name, self.events = name, events

    def readings(self):
        return {}

    @contextlib.contextmanager
    def step(self, kind):
        self.events.append(f"{self.name} opens")
        yield
        self.events.append(f"{self.name} closes")

    def stepped(self, kind, outcome):
        self.events.append(f"{self.name} reads {kind}")


class MakesSteps(Trainer):
    """An engine."""

    events: list[str]
    skips: int

    def batch(self, step):
        self.events.append(f"batch {step}")
        return []

    def step(self, batch):
        self.events.append("step")
        self.skips -= 1
        return StepOutcome(skipped=self.skips >= 0)


class WaitsForSteps(MakesSteps):
    """The trainer of a script."""

    batch_in_step = True

    def batch(self, step):
        return []

    def make_steps(self, batches):
        skipped = yield
        self.events.append("outcome")
        return [StepOutcome(skipped=skipped)]


AFTER = ["inner closes", "outer closes", "outer reads timed", "inner reads timed"]


def test_an_engine_makes_each_step_within_all_meters() -> None:
    """They are read after the last of them has closed. Nothing waits."""
    noted = Noted(MakesSteps)

    assert list(noted.loop(StepKind.TIMED)) == []
    assert noted.events == ["mark batch", "batch 0", "outer opens", "inner opens", "step", *AFTER]


def test_a_script_makes_its_step_when_the_meters_are_open() -> None:
    """The next step is open as soon as one is made."""
    noted = Noted(WaitsForSteps)
    loop = noted.loop(StepKind.TIMED, StepKind.TIMED)
    next(loop)
    begun = ["mark batch", "outer opens", "inner opens"]
    assert noted.events == begun

    loop.send(False)
    assert noted.events == [*begun, "outcome", *AFTER, *begun]


def test_an_unfenced_block_makes_its_batches_first() -> None:
    """Meters are around the whole block, and read each of its steps."""
    noted = Noted(MakesSteps)
    list(noted.loop(StepKind.UNFENCED))

    assert noted.events[:4] == ["mark batch", "batch 0", "mark batch", "batch 1"]
    assert noted.events.count("step") == noted.events.count("inner reads unfenced") == 2
    assert noted.events.count("inner opens") == 1


@pytest.mark.parametrize(("kind", "made"), [(StepKind.TRACED, 3), (StepKind.TIMED, 1)])
def test_a_traced_step_that_overflows_is_made_again(kind: StepKind, made: int) -> None:
    """It has no optimizer state."""
    noted = Noted(MakesSteps, skips=2)
    list(noted.loop(kind))

    assert noted.events.count("step") == made


def test_steps_that_all_overflow_end_the_rank() -> None:
    """After more than a loss scale has bits."""
    with pytest.raises(RankError, match=f"overflowed in {MOST_OVERFLOWS} steps"):
        list(Noted(MakesSteps, skips=100).loop(StepKind.TRACED))


def test_a_norm_is_read_in_the_steps_that_count_no_operators() -> None:
    """A timed step has the library's own work alone."""
    noted = Noted(MakesSteps)
    read = []
    noted.trainer.step = lambda batch: read.append(noted.trainer.reads_norm) or StepOutcome()
    list(noted.loop(StepKind.WARMUP, StepKind.TIMED, StepKind.COUNTED))

    assert read == [True, False, True]


def test_listeners_of_a_copy_hear_nothing_of_the_other() -> None:
    """Nor does the other of them."""
    heard: list[str] = []
    phases = StepPhases()
    phases.listen(lambda phase: heard.append(f"both {phase}"))
    copied = phases.copy()
    copied.listen(lambda phase: heard.append(f"copy {phase}"))
    phases.mark("forward")
    copied.mark("end")

    assert heard == ["both forward", "both end", "copy end"]


def test_a_name_ends_with_what_it_names() -> None:
    """Names of parts are before the paths of modules, and instead of phases."""
    phases = StepPhases()
    with phases.named("part", "reward"):
        assert (phases.within("h.0"), phases.outside("forward")) == ("reward.h.0", "reward")

    assert (phases.within("h.0"), phases.outside("forward")) == ("h.0", "(forward)")
