"""How often a script's learning-rate schedulers step, for which updates, and what average of weights follows them."""

import contextlib
import math
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import msgspec

from perfsuite.features.prove.relations._changes import DEEPSPEED
from perfsuite.features.prove.relations._schedule_lengths import lengths_of
from perfsuite.rank.script.probes import Probe, ProvedScript
from perfsuite.rank.script.watched import replace
from perfsuite.records.record import Record

PROBE = f"{__name__}:ScheduleProbe"
FEWEST_RATES = 3
BEYOND = 4  # times the updates, of which a factor of the user's own is asked
TURNS = "T_max"  # of the one that rises again after its end
ACCELERATE = "accelerate.scheduler"
DEEPSPEED_SCHEDULES = "deepspeed.runtime.lr_schedules"


class Schedule(Record, frozen=True, kw_only=True):
    """One scheduler. ``counts`` are its steps for an update of each iteration, ``early`` those before the first one.
    ``inner`` is that of a scheduler inside of another. ``rates`` are its optimizer's learning rates in the updates.
    ``length`` is the number of steps that it is made for, 0 if it does not say; ``turns``: then it goes back. In the
    first ``warmup`` of them the rate rises, if it says so.
    ``position`` is how many of them it has made, as it counts itself: accelerate's makes one for each rank.
    ``after`` are its steps since the last iteration: a later stage of training has another optimizer, and none.
    ``asked`` is how many different learning rates it has set before updates, and ``got`` how many the updates had.
    """

    kind: str
    made: str  # the user's line
    line: str  # of the last step
    counts: list[int]
    early: int
    after: int = 0
    inner: bool
    steps_known_optimizer: bool
    rates: list[float]
    length: int
    turns: bool
    warmup: int
    position: int
    asked: int
    got: int


class Schedules(Record, frozen=True, kw_only=True):
    """``skipped`` are the iterations without an update, by their number from 0. ``averaged`` is how often an average of
    weights was updated in one iteration at most. ``backwards`` counts micro-batches. ``rates`` are the highest ones of
    each optimizer's updates.
    """

    averaged: int
    average_line: str
    schedulers: list[Schedule]
    iterations: int
    skipped: list[int]
    ended: bool  # the script by itself
    backwards: int
    ranks: int
    left_behind: int = 0  # parameter groups whose rate stays, where the script itself sets that of others
    update_line: str = ""
    rates: list[list[float]] = []


class _Followed:
    """A scheduler as it is followed."""

    def __init__(self, scheduler: Any, made: str) -> None:
        self.scheduler, self.made = scheduler, made
        self.line = ""
        self.counts: list[int] = []
        self.now = self.early = 0  # steps since the last iteration, and before the first
        self.updates = 0  # of its own optimizer since then: a critic may have several
        self.ahead = 0  # after the update of a step that has not ended
        self.inner = False
        self.rates: list[float] = []
        self.asked: set[tuple[float, ...]] = set()  # of all groups
        self.got: set[tuple[float, ...]] = set()


class ScheduleProbe(Probe):
    """Follows all schedulers of torch, and what is around them."""

    def __init__(self, torch: ModuleType, script: ProvedScript) -> None:
        super().__init__(torch, script)
        self.followed: dict[int, _Followed] = {}
        self.skipped: list[int] = []
        self.iterations = self.backwards = 0
        self._groups: dict[int, tuple[float, list[set[float]]]] = {}  # by optimizer: its default, and all of each group
        self._rates: dict[int, list[float]] = {}  # by optimizer: the highest of each update
        self._update_line = ""
        self._depth = 0
        self._stepped: list[Any] = []  # inside of an outermost call
        self._updated = False  # in the step that has not ended: DeepSpeed's engine then steps its scheduler
        self.averages: Counter[tuple[int, int]] = Counter()  # by iteration and average
        self.average_line = ""
        kinds = torch.optim.lr_scheduler
        replace(kinds.LRScheduler, "__init__", self._making)
        self._follow_kinds(kinds, kinds.LRScheduler)
        replace(torch.optim.swa_utils.AveragedModel, "update_parameters", self._averaging)

    def _follow_kinds(self, module: ModuleType, base: type = object) -> None:
        for kind in [value for value in vars(module).values() if isinstance(value, type)]:
            if issubclass(kind, base) and "step" in vars(kind):
                replace(kind, "step", self._stepping)

    def imported(self, module: ModuleType) -> None:
        """DeepSpeed has schedulers of its own."""
        if module.__name__ == DEEPSPEED:
            self._follow_kinds(sys.modules[DEEPSPEED_SCHEDULES])

    def _averaging(self, update: Callable[..., None]) -> Callable[..., None]:
        def averaging(average: Any, *args: Any, **kwargs: Any) -> None:
            if self.iterations:
                self.averages[self.iterations, id(average)] += 1
                self.average_line = self.script.line()
            update(average, *args, **kwargs)

        return averaging

    def _making(self, make: Callable[..., None]) -> Callable[..., None]:
        def making(scheduler: Any, *args: Any, **kwargs: Any) -> None:
            self._follow(scheduler)
            self._depth += 1  # it makes a first step itself
            try:
                make(scheduler, *args, **kwargs)
            finally:
                self._depth -= 1
                self._stepped.clear()

        return making

    def _follow(self, scheduler: Any) -> _Followed:
        return self.followed.setdefault(id(scheduler), _Followed(scheduler, self.script.line()))

    def _stepping(self, step: Callable[..., Any]) -> Callable[..., Any]:
        def stepping(scheduler: Any, *args: Any, **kwargs: Any) -> Any:
            return self._outermost(scheduler, lambda: step(scheduler, *args, **kwargs))

        return stepping

    def _wrapped(self, step: Callable[..., Any]) -> Callable[..., Any]:
        """accelerate's scheduler steps the one that it has once for each rank."""

        def stepping(wrapper: Any, *args: Any, **kwargs: Any) -> Any:
            return self._outermost(None, lambda: step(wrapper, *args, **kwargs))

        return stepping

    def _outermost(self, scheduler: Any, step: Callable[[], Any]) -> Any:
        if scheduler is not None:
            self._stepped.append(scheduler)
        self._depth += 1
        try:
            return step()
        finally:
            self._depth -= 1
            if not self._depth and self._stepped:
                first, *others = self._stepped
                followed = self._follow(first)
                if self._updated:
                    followed.ahead += 1
                else:
                    followed.now += 1
                followed.line = self.script.line()
                for one in others:
                    if one is not first:
                        self._follow(one).inner = True
                self._stepped.clear()

    def before_backward(self) -> None:
        """Of a micro-batch."""
        self.backwards += 1

    def before_optimizer(self) -> None:
        """accelerate is imported by now."""
        module = sys.modules.get(ACCELERATE)
        if module and not hasattr(module.AcceleratedScheduler.step, "__wrapped__"):
            replace(module.AcceleratedScheduler, "step", self._wrapped)

    def around_update(self, optimizer: Any, update: Callable[[], Any]) -> Any:
        """Its learning rate is that of its schedulers."""
        self._update_line = self._update_line or self.script.line()
        default = float(optimizer.defaults.get("lr", 0.0))
        _, groups = self._groups.setdefault(id(optimizer), (default, [set() for _ in optimizer.param_groups]))
        self._rates.setdefault(id(optimizer), []).append(max(float(group["lr"]) for group in optimizer.param_groups))
        for rates_of_group, group in zip(groups, optimizer.param_groups, strict=False):
            rates_of_group.add(float(group["lr"]))
        for one in self.followed.values():
            if _inner(one.scheduler.optimizer) is optimizer:
                one.updates += self.watched.engine is None  # whose ZeRO-3 makes many of one
                rates = tuple(float(group["lr"]) for group in optimizer.param_groups)
                one.rates.append(max(rates))
                one.got.add(rates)
                with contextlib.suppress(AttributeError):  # of one that has set none yet
                    one.asked.add(tuple(map(float, one.scheduler.get_last_lr())))
        result = update()
        self._updated = self.watched.engine is not None
        return result

    def iterated(self, skipped: bool) -> None:
        """Steps of schedulers from here on follow this update."""
        if skipped:
            self.skipped.append(self.iterations)
        for one in self.followed.values():
            if self.iterations:
                one.counts += [0] * (self.iterations - 1 - len(one.counts))  # made later
                one.counts.append(math.ceil(one.now / max(one.updates, 1)))
            else:
                one.early = one.now
            one.now, one.ahead, one.updates = one.ahead, 0, 0
        self.iterations += 1
        self._updated = False

    def facts(self) -> Any:
        """A record, Schedules. What follows the last update may be cut off."""
        most = BEYOND * max(self.iterations, self.backwards) * self.script.world_size
        schedulers = [
            Schedule(
                kind=type(one.scheduler).__name__,
                made=one.made,
                line=one.line,
                counts=one.counts,
                early=one.early,
                after=one.now + one.ahead,
                inner=one.inner,
                steps_known_optimizer=self._is_known(one.scheduler.optimizer),
                rates=one.rates,
                length=lengths.whole,
                turns=hasattr(one.scheduler, TURNS),
                warmup=lengths.warmup,
                position=int(
                    getattr(one.scheduler, "last_epoch", 0) or getattr(one.scheduler, "last_batch_iteration", 0)
                ),
                asked=len(one.asked),
                got=len(one.got),
            )
            for one in self.followed.values()
            for lengths in [lengths_of(one.scheduler, most)]
        ]
        facts = Schedules(
            averaged=max(self.averages.values(), default=0),
            average_line=self.average_line,
            schedulers=schedulers,
            iterations=self.iterations,
            skipped=self.skipped,
            ended=self.script.ended,
            backwards=self.backwards,
            ranks=self.script.world_size,
            left_behind=0 if self.followed else sum(_left_behind(*one) for one in self._groups.values()),
            update_line=self._update_line,
            rates=list(self._rates.values()),
        )
        return msgspec.to_builtins(facts)

    def _is_known(self, optimizer: Any) -> bool:
        return self.watched.engine is not None or id(_inner(optimizer)) in self.watched.optimizers


def _left_behind(default: float, groups: Sequence[set[float]]) -> int:
    """How many groups keep the optimizer's own rate, while that of others changes."""
    stays = sum(rates == {default} for rates in groups)
    return stays if any(len(rates) >= FEWEST_RATES for rates in groups) else 0


def _inner(optimizer: Any) -> Any:
    """What accelerate's wrapper is around."""
    while hasattr(optimizer, "optimizer"):
        optimizer = optimizer.optimizer
    return optimizer
