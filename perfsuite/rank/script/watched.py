"""What a training loop does, seen from outside: torch's hooks tell when data, forward, backward and optimizer begin.

    data        the DataLoader's iterator, with the modules that it calls, such as transforms
    forward     the outermost call of another module
    backward    torch's autograd engine
    optimizer   the step of any torch.optim.Optimizer, of a GradScaler, or of DeepSpeed's engine

The first torch.optim.Optimizer to step is number 0. When it has stepped, an iteration has ended. A GradScaler that
skips a step ends one as well, and so does DeepSpeed's engine, whose ZeRO-3 steps the inner optimizer many times. A
script without any such optimizer ends one by an update of its own (own_updates.py).
"""

import contextlib
import functools
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from perfsuite.rank.memory.whereabouts import inner_model
from perfsuite.rank.script.batch_size import BatchSize, size_of, tensors_in
from perfsuite.rank.script.first_data import FirstData
from perfsuite.rank.script.logged import Logged
from perfsuite.rank.script.own_updates import OwnUpdates
from perfsuite.rank.script.told import Told
from perfsuite.rank.torch_types import Module, Tensor

LETTERS = {"data": "D", "forward": "F", "backward": "B"}


def _nothing() -> None:
    """Nobody follows."""


@dataclass(frozen=True)
class LoopMoments:
    """What is called at moments of the loop: before the backward of a loss, before an optimizer, and in place of the
    call of an outermost module (with the module, its arguments and the call) and of an update (with the optimizer and
    its step).
    """

    before_backward: Callable[[], None] = _nothing
    before_optimizer: Callable[[], None] = _nothing
    around_forward: Callable[..., object] | None = None
    around_update: Callable[..., object] | None = None


class Watched:
    """The loop of this process. ``mark`` gets each phase as it begins, ``iterated`` is called at the end of each
    iteration with whether its update was skipped. Other threads than the one that makes the first step are not watched.
    """

    def __init__(self, mark: Callable[[str], None], iterated: Callable[[bool], None]) -> None:
        self.mark, self.iterated = mark, iterated
        self.roots: dict[int, Module] = {}  # called outermost, in training mode or with parameters of an optimizer
        self.frozen: weakref.WeakValueDictionary[int, Module] = (
            weakref.WeakValueDictionary()
        )  # called outermost in evaluation mode
        self.evaluated: set[str] = set()  # classes of those that autograd recorded there
        self.autocast: set[str] = set()  # the dtypes of all autocast contexts
        self.optimizers: dict[int, Any] = {}  # that have stepped
        self.made: weakref.WeakSet[Any] = weakref.WeakSet()  # all optimizers
        self._own_updates = OwnUpdates()
        self.told = Told()  # what they were told in their first updates
        self.logged = Logged()
        self.first = FirstData()
        self.losses: list[Tensor] = []  # what backward began with in this iteration
        self.sizes: list[BatchSize] = []  # of the batches of this iteration
        self.rows = 0  # of a data set, drawn for the batch that was read last; 0 if they are not known
        self.has_loader = False  # a DataLoader makes them; else they are what modules are called with
        self.moments = LoopMoments()
        self.around_wait: Callable[[Callable[[], Any]], Any] | None = None  # in place of a wait for a collective
        self.clipped = False  # the gradients are no longer as backward left them
        self.updates = True  # else no optimizer changes a weight
        self.events = ""  # of this iteration, each kind once in a row
        self.evaluates = False  # the outermost module that runs is in evaluation mode
        self._elements: int | None = None  # of what modules are given to train with, once they are counted
        self.only_evaluates = False  # the module that is trained runs, and autograd records nothing
        self.recomputing = False  # a forward inside of a backward: activation checkpointing
        self.engine: Any = None  # DeepSpeed's, if it makes the steps
        self.by_hand = False  # the script says itself where a step ends
        self.begun_at = 0.0  # the first phase of all
        self._running: list[str] = []
        self._stepped = self._ended = False
        self._thread = threading.get_ident()

    def follow(self, moments: LoopMoments) -> None:
        """Call these from now on, and no others."""
        self.moments = moments

    @property
    def is_here(self) -> bool:
        """Whether the calling thread is the one that is watched."""
        return threading.get_ident() == self._thread

    @property
    def models(self) -> list[Module]:
        """The outermost modules with parameters, if any has some: no loss, and no part that is called alone too."""
        roots = list(self.roots.values())
        trained = [root for root in roots if next(root.parameters(), None) is not None] or roots
        inner = {id(part) for parameter in trained for part in parameter.modules() if part is not parameter}
        return [parameter for parameter in trained if id(parameter) not in inner]

    @property
    def devices(self) -> set[str]:
        """The devices that hold the modules' parameters."""
        return {str(parameter.device) for root in self.roots.values() for parameter in root.parameters()}

    @property
    def counts(self) -> bool:
        """Whether the first optimizer's step ends an iteration."""
        return self.engine is None and not self.by_hand

    @property
    def _updates_itself(self) -> bool:
        """Whether the script has no optimizer of torch's."""
        return self.counts and not self.optimizers and not self.made

    @property
    def unstepped(self) -> bool:
        """Whether an optimizer has not stepped yet, and none that has its parameters: a wrapper never steps."""
        known = {parameter for optimizer in self.optimizers.values() for parameter in parameters_of(optimizer)}
        waiting = [one for one in self.made if id(one) not in self.optimizers]
        return any(known.isdisjoint(parameters_of(one)) for one in waiting)

    @property
    def has_batch(self) -> bool:
        """Whether lines of the script run, between a batch that its loader has given for this step and the step's end.
        Without an optimizer, the batch is one to build the model by.
        """
        return self.has_loader and bool(self.sizes and self.made) and not self._running

    def trains(self, module: Module) -> bool:
        """Whether it is one that was called outermost in training mode, or what such a wrapper is around."""
        return any(module is root or module is inner_model(root) for root in self.roots.values())

    def called(self, module: Module, args: Any, kwargs: Any, trains: bool) -> None:
        """A module is about to be called outermost. It ``trains`` if autograd may record it."""
        if not self.has_loader and module.training and trains and "input_ids" in kwargs:
            self.sizes.append(size_of(kwargs))
        self.first.called(module, args, kwargs, trains)
        if self._updates_itself:
            self._own_updates.called(self.roots.values())
        if self._elements is not None and trains:
            self._elements += sum(tensor.numel() for _, tensor in tensors_in([args, kwargs]))

    @property
    def elements(self) -> int:
        """How many numbers modules were given to train with since ``count_elements``."""
        return self._elements or 0

    def count_elements(self) -> None:
        """Count them from now on; once is enough."""
        self._elements = self.elements

    @contextlib.contextmanager
    def waits_by(self, around_wait: Callable[[Callable[[], Any]], Any]) -> Iterator[None]:
        """Inside, this is called with each wait for a collective, which it makes."""
        self.around_wait = around_wait
        try:
            yield
        finally:
            self.around_wait = None

    def allow_updates(self, allowed: bool) -> None:
        """From now on an optimizer's step changes the weights, or leaves them as they are."""
        self.updates = allowed

    def end_by_hand(self) -> bool:
        """From now on the script says itself where a step ends. Whether this is new."""
        is_new, self.by_hand = not self.by_hand, True
        return is_new

    def forget(self) -> None:
        """A step has ended, and what it read is known."""
        self.losses.clear()
        self.sizes.clear()

    def begun(self) -> None:
        """The first step begins, here: training may have a thread of its own."""
        if not self.is_here:
            self.forked()

    def forked(self) -> None:
        """What trains is a child of the process that was watched, or another thread of it."""
        self._thread = threading.get_ident()
        self.events, self._running = "", []
        self.forget()

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """Inside, the calls are perfsuite's own."""
        thread, self._thread = self._thread, 0
        try:
            yield
        finally:
            self._thread = thread

    def begin(self, phase: str) -> None:
        """A phase begins, perhaps inside of another."""
        self.begun_at = self.begun_at or time.perf_counter()
        if not self._running and self._updates_itself and self._own_updates.made(self.roots.values()):
            self.note("O")
            self.iterated(False)
        self._running.append(phase)
        self.mark(phase)

    def end(self, phase: str) -> None:
        """It ends: the one around it goes on."""
        self._running.pop()
        if phase == "backward" and self._updates_itself:
            self._own_updates.differentiated(self.roots.values())
        self.note(LETTERS.get(phase, ""))
        self.resume()
        if self._ended and not self.runs("backward"):
            self._ended = False
            self.iterated(False)

    def resume(self) -> None:
        """The phase that has not ended goes on."""
        self.mark(self._running[-1] if self._running else "other")

    def runs(self, phase: str) -> bool:
        """Whether the phase has begun and not ended."""
        return phase in self._running

    def note(self, event: str) -> None:
        if event and not self.events.endswith(event):
            self.events += event

    def stepped(self, optimizer: Any) -> None:
        """An optimizer has stepped."""
        self._stepped = True
        number = self._number(optimizer)
        self.note(f"O{number}")
        if number or not self.counts:
            return
        if self.runs("backward"):  # a hook of a parameter's gradient steps: the iteration ends with the backward
            self._ended = True
        elif not self.runs("optimizer"):  # else its GradScaler goes on
            self.iterated(False)

    def scaled(self, optimizer: Any, step: Callable[[], Any]) -> Any:
        """A GradScaler's step, which may skip the optimizer's."""
        self._stepped = False
        self.begin("optimizer")
        try:
            return step()
        finally:
            self.end("optimizer")
            if not self._stepped:
                self.note(f"O{self._number(optimizer)}")
            if self._number(optimizer) == 0 and self.counts:
                self.iterated(not self._stepped)

    def _number(self, optimizer: Any) -> int:
        if id(optimizer) not in self.optimizers:
            self.optimizers[id(optimizer)] = optimizer
            updated = parameters_of(optimizer)
            for key, module in self.frozen.items():
                if any(id(parameter) in updated for parameter in module.parameters()):
                    self.roots.setdefault(key, module)
        return list(self.optimizers).index(id(optimizer))


def parameters_of(optimizer: Any) -> set[int]:
    """The ids of all that an optimizer has."""
    return {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}


def replace(owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Put what ``make`` makes of it in place of a function."""
    real = getattr(owner, name)
    setattr(owner, name, functools.wraps(real)(make(real)))
