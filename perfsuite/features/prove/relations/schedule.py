"""schedule: a learning-rate scheduler makes one step for each update of its optimizer, or one for each epoch.

Skipped updates do not count, and the schedule ends with training: not before it, and not long after it. An average of
weights follows each update once.
"""

import itertools
import math
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import msgspec

from perfsuite.features.prove.relation import CannotTry, Judged, Relation, Remark, Seen, by_own_run, typed
from perfsuite.rank.script.probes import Probe, ProvedScript
from perfsuite.rank.script.watched import replace
from perfsuite.records.record import Record

FEWEST = 3  # updates
LENGTHS = ("total_steps", "T_max")  # attributes of schedulers that fall to the end: OneCycleLR, CosineAnnealingLR
LENGTH = "num_training_steps"  # of the schedules of transformers
NEAR = 0.25  # of the updates, a length that counts them
TURNS = "T_max"  # of the one that rises again after its end
ACCELERATE = "accelerate.scheduler"
INITIAL = "_initial_step"  # the step that a scheduler makes while it is made


class Schedule(Record, frozen=True, kw_only=True):
    """One scheduler. ``counts`` are its steps for an update of each iteration, ``early`` those before the first one.
    ``inner`` is that of a scheduler inside of another. ``rates`` are its optimizer's learning rates in the updates.
    ``length`` is the number of steps that it is made for, 0 if it does not say; ``turns``: then it goes back.
    """

    kind: str
    made: str  # the user's line
    line: str  # of the last step
    counts: list[int]
    early: int
    inner: bool
    steps_known_optimizer: bool
    rates: list[float]
    length: int
    turns: bool


class Schedules(Record, frozen=True, kw_only=True):
    """``skipped`` are the iterations without an update, by their number from 0. ``averaged`` is how often an average of
    weights was updated in one iteration at most.
    """

    averaged: int
    average_line: str
    schedulers: list[Schedule]
    iterations: int
    skipped: list[int]
    ended: bool  # the script by itself


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


class ScheduleProbe(Probe):
    """Follows all schedulers of torch, and what is around them."""

    def __init__(self, torch: ModuleType, script: ProvedScript) -> None:
        super().__init__(torch, script)
        self.followed: dict[int, _Followed] = {}
        self.skipped: list[int] = []
        self.iterations = 0
        self._depth = 0
        self._stepped: list[Any] = []  # inside of an outermost call
        self._updated = False  # in the step that has not ended: DeepSpeed's engine then steps its scheduler
        self.averages: Counter[tuple[int, int]] = Counter()  # by iteration and average
        self.average_line = ""
        kinds = torch.optim.lr_scheduler
        replace(kinds.LRScheduler, "__init__", self._making)
        for kind in [value for value in vars(kinds).values() if isinstance(value, type)]:
            if issubclass(kind, kinds.LRScheduler) and "step" in vars(kind):
                replace(kind, "step", self._stepping)
        replace(torch.optim.swa_utils.AveragedModel, "update_parameters", self._averaging)

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

    def before_optimizer(self) -> None:
        """accelerate is imported by now."""
        module = sys.modules.get(ACCELERATE)
        if module and not hasattr(module.AcceleratedScheduler.step, "__wrapped__"):
            replace(module.AcceleratedScheduler, "step", self._wrapped)

    def around_update(self, optimizer: Any, update: Callable[[], Any]) -> Any:
        """Its learning rate is that of its schedulers."""
        for one in self.followed.values():
            if _inner(one.scheduler.optimizer) is optimizer:
                one.updates += self.watched.engine is None  # whose ZeRO-3 makes many of one
                one.rates.append(max(float(group["lr"]) for group in optimizer.param_groups))
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
        schedulers = [
            Schedule(
                kind=type(one.scheduler).__name__,
                made=one.made,
                line=one.line,
                counts=one.counts,
                early=one.early,
                inner=one.inner,
                steps_known_optimizer=self._is_known(one.scheduler.optimizer),
                rates=one.rates,
                length=_length(one.scheduler),
                turns=hasattr(one.scheduler, TURNS),
            )
            for one in self.followed.values()
        ]
        facts = Schedules(
            averaged=max(self.averages.values(), default=0),
            average_line=self.average_line,
            schedulers=schedulers,
            iterations=self.iterations,
            skipped=self.skipped,
            ended=self.script.ended,
        )
        return msgspec.to_builtins(facts)

    def _is_known(self, optimizer: Any) -> bool:
        return self.watched.engine is not None or id(_inner(optimizer)) in self.watched.optimizers


def _length(scheduler: Any) -> int:
    found = [getattr(scheduler, name, 0) for name in LENGTHS]
    found += [getattr(one, "keywords", {}).get(LENGTH, 0) for one in getattr(scheduler, "lr_lambdas", ())]
    return int(max(found))


def _inner(optimizer: Any) -> Any:
    """What accelerate's wrapper is around."""
    while hasattr(optimizer, "optimizer"):
        optimizer = optimizer.optimizer
    return optimizer


def _judge(seen: Seen) -> Judged:
    facts = typed(seen, Schedules)[0]
    outer = [scheduler for scheduler in facts.schedulers if not scheduler.inner]
    if facts.averaged > 1:
        return RELATION.broken([Remark(what="averaged", number=facts.averaged, line=facts.average_line)])
    if not outer:
        raise CannotTry(Remark(what="none"))
    if facts.iterations < FEWEST:
        raise CannotTry(Remark(what="few", number=facts.iterations))
    wrong = [remark for one in outer if (remark := _wrong(one, facts))]
    stepped = [one for one in outer if sum(one.counts) or one.early]
    if not wrong and not stepped:
        raise CannotTry(Remark(what="waits", subject=outer[0].kind, line=outer[0].made, number=facts.iterations))
    each = [one.kind for one in stepped]
    return RELATION.broken(wrong, [], Remark(what="held", subject=", ".join(each), number=facts.iterations))


def _wrong(one: Schedule, facts: Schedules) -> Remark | None:
    """What is wrong with a scheduler first of all."""
    after_updates = [count for number, count in enumerate(one.counts) if number not in facts.skipped]
    after_skipped = [one.counts[number] for number in facts.skipped if number < len(one.counts)]
    stepped = sum(one.counts)
    if stepped and not one.steps_known_optimizer:
        return Remark(what="stranger", subject=one.kind, line=one.made)
    if any(count > 1 for count in after_updates):
        most = max(after_updates)
        usual = all(count == most for count in after_updates)
        return Remark(what="often" if usual else "sometimes", subject=one.kind, number=most, line=one.line)
    if one.early:
        return Remark(what="early", subject=one.kind, number=one.early, line=one.line)
    if any(after_skipped) and any(after_updates):
        return Remark(what="skipped", subject=one.kind, number=len(after_skipped), line=one.line)
    zeros, first = _zeros(one.rates)
    if zeros > 1:
        return Remark(what="zero", subject=one.kind, step=first, number=zeros, line=one.line or one.made)
    if facts.ended and not stepped:
        return Remark(what="never", subject=one.kind, number=facts.iterations, line=one.made)
    about: dict[str, Any] = {"number": stepped, "expected": one.length, "line": one.line or one.made}
    if one.turns and stepped > one.length + 1:
        return Remark(what="turns", subject=one.kind, **about)
    counts_updates = math.isclose(one.length, facts.iterations, rel_tol=NEAR)
    if facts.ended and counts_updates and stepped * 2 < one.length:
        return Remark(what="short", subject=one.kind, **about)
    return None


def _zeros(rates: Sequence[float]) -> tuple[int, int]:
    """The most updates in a row with a learning rate of 0, and the number of the first of them, from 1."""
    longest, at = (0, 0), 1
    for is_zero, some in itertools.groupby(rates, lambda rate: rate == 0):
        count = len(list(some))
        longest = max(longest, (count, at)) if is_zero else longest
        at += count
    return longest


RELATION = Relation(
    name="schedule",
    order=30,
    asks="A learning-rate scheduler makes one step for each update, or one for each epoch.",
    probe=f"{__name__}:ScheduleProbe",
    says={
        "held": "{subject} makes at most one step for each of {number} updates",
        "none": "the script makes no scheduler of torch.optim.lr_scheduler",
        "few": "the script made {number} updates, and 3 are needed: let it train longer",
        "never": "{subject} made no step in all of {number} updates: is its step() called?",
        "waits": "{subject} made no step in {number} updates: let the script train for more than an epoch, with less "
        "data",
        "stranger": "{subject} changes the learning rate of an optimizer that makes no step",
        "early": "{subject} made {number} steps before the first update: a learning rate is left out",
        "often": "{subject} makes {number} steps for each update: is it called for each micro-batch, or for each rank?",
        "sometimes": "{subject} makes up to {number} steps for one update: is it called in two places?",
        "skipped": "{subject} made a step after each of {number} skipped updates: ask the GradScaler whether "
        "it skipped",
        "averaged": "an average of weights is updated {number} times for one update of the weights: is it called for "
        "each micro-batch, or in two places?",
        "turns": "{subject} falls for {expected} steps and then rises again, and it made {number}: does its length "
        "count epochs, and its step() updates?",
        "short": "{subject} is made for {expected} steps, and makes {number} in all of training: does its length count "
        "updates, and its step() epochs?",
        "zero": "the learning rate of {subject} is 0 in {number} updates from update {step} on: does the schedule "
        "count other steps than updates?",
    },
    prove=by_own_run(_judge),
)
