"""In which mode a script's models train, and what an evaluation leaves behind."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import msgspec

from perfsuite.features.prove.relations._dropouts import watch_dropouts
from perfsuite.features.prove.relations._references import References
from perfsuite.features.prove.relations._swaps import Swaps
from perfsuite.rank.build_model import random_states
from perfsuite.rank.memory.whereabouts import inner_model
from perfsuite.rank.script.probes import Probe, ProvedScript, digest, plain
from perfsuite.rank.torch_types import Module
from perfsuite.records.record import Record

PROBE = f"{__name__}:ModeProbe"
OF_AN_EVALUATION = ("on", "changed", "swapped", "frozen", "again")


class ModeFault(Record, frozen=True, kw_only=True):
    """One kind. ``step`` counts from 1: the one that is wrong if the kind is "off", else that before the evaluation.
    ``names`` are modules, parameters or functions.
    """

    step: int
    names: list[str]
    line: str


class Modes(Record, frozen=True, kw_only=True):
    """Of one rank. ``matters``: some module does something else in evaluation mode. ``faults`` are by their kind:

    off: trains modules which trained before, but are in evaluation mode now, or the whole model always. on:
    evaluates in training mode. changed: an evaluation changed parameters or buffers. drops: it called a function of
    dropout. swapped: it put in weights with which training goes on. frozen: it froze parameters, which stay so.
    again: it left random numbers as an earlier one did. seeded: a step drew those of another one. reference: models
    that are not trained drop values at random.
    """

    steps: int
    evaluations: int
    matters: bool
    always_off: bool  # the whole model, from the first step on
    faults: dict[str, ModeFault]


class ModeProbe(Probe):
    """Looks at each outermost call of a trained module."""

    def __init__(self, torch: ModuleType, script: ProvedScript) -> None:
        super().__init__(torch, script)
        self.evaluations = 0
        self.matters = self.always_off = self.draws = False
        self.trained: dict[int, set[str]] = {}  # of each model, what is in training mode when it first trains
        self.found: dict[str, ModeFault] = {}
        self._pending: dict[int, tuple[Module, set[str], str]] = {}  # until a backward: what is on, and the line
        self._evaluated: set[int] = set()  # modules that an evaluation has called in evaluation mode
        self._on_steps: set[int] = set()  # after which something ran without gradients in training mode
        self._evaluating = ""  # the line of an evaluation since the last update
        self._before: dict[str, str] = {}
        self._trainable: set[str] = set()  # parameters, as a step ends
        self._frozen: set[str] = set()  # of them, as an evaluation runs
        self._swaps = Swaps(torch, script)
        self._random = ""  # the state of random numbers as a step ends
        self._started: set[str] = set()  # those before an evaluation
        self._left: set[str] = set()  # states with which training went on
        self._first: dict[str, int] = {}  # states with which a step began, and the first of these steps
        self._quiet = False  # a forward runs in which no module is in training mode
        watch_dropouts(torch, self._drops)
        self._references = References(torch, script)

    def _drops(self, name: str) -> None:
        if self._quiet:
            self._note("drops", [name], self.script.line())

    def around_forward(self, model: Module, args: Any, kwargs: Any, call: Callable[[], Any]) -> Any:
        """Training, or an evaluation of the same module."""
        if not self._is_trained(model):
            return self._references.called(model, call) if self.trained else call()
        if self.torch.is_grad_enabled() and (model.training or not self.trained):
            self._after_evaluation()
        if self.torch.is_grad_enabled():
            return self._training(model, call)
        return self._evaluation(model, call)

    def _is_trained(self, model: Module) -> bool:
        if model in self.script.models():
            return True
        inner = [inner_model(one) for one in self.script.models()]
        optimized = self.script.optimized
        return inner_model(model) in inner or any(id(parameter) in optimized for parameter in model.parameters())

    def _training(self, model: Module, call: Callable[[], Any]) -> Any:
        inner = inner_model(model)
        self.matters |= bool(_sensitive(self.torch, inner))
        self._pending[id(inner)] = inner, _active(inner), self.script.line()
        before = _random_state()
        result = call()
        if before != _random_state():
            self.draws = True
            if self._first.setdefault(before, self.script.step) < self.script.step - 1:  # a step may be made again
                self._note("seeded", [type(inner).__name__], self.script.line())
        return result

    def before_backward(self) -> None:
        """The forwards before it were of training, if the mode is still theirs."""
        for key, (model, on, line) in self._pending.items():
            now = on | _active(model)
            if key not in self.trained:
                self.trained[key] = on
                if not now and _sensitive(self.torch, model):
                    self.always_off = True
                    self._note("off", [type(model).__name__], line)
            elif not self.always_off and (off := [name for name in self.trained[key] if name not in now]):
                parts = {plain(name): id(module) for name, module in model.named_modules()}
                if not model.training or any(parts.get(name) in self._evaluated for name in off):
                    self._note("off", off, line)
        self._pending.clear()

    def _evaluation(self, model: Module, call: Callable[[], Any]) -> Any:
        if not self.trained or not self.script.step:  # what is before training may be anything
            return call()
        self.evaluations += 1
        line = self.script.line()
        if not model.training:
            self._evaluated.add(id(inner_model(model)))
        if not self._evaluating:
            self._evaluating = line or "an evaluation"
            self._before = self._swaps.evaluation_begins()
            self._frozen = self._trainable - self._trainable_now()
        names = [name for name, module in inner_model(model).named_modules() if module.training]
        active = [name for name in _sensitive(self.torch, inner_model(model)) if name in {*map(plain, names)}]
        if active or model.training:
            self._on_steps.add(self.script.step)
        if active:
            self._note("on", active, line)
        self._quiet = not names
        try:
            return call()
        finally:
            self._quiet = False

    def _after_evaluation(self) -> None:
        """Training goes on: all is as it was after the update before."""
        if not self._evaluating:
            self._swaps.goes_straight_on()
            return
        now = self.script.digests_now()
        changed = [name for name, one in self._before.items() if name in now and now[name] != one]
        if changed := self._swaps.not_put_back(changed, now):
            self._note("changed", changed, self._evaluating)
        elif moved := self._swaps.moved({name for name, one in self.script.parameters() if not one.requires_grad}, now):
            self._note("changed", moved, self._evaluating)
        elif swapped := self._swaps.stay(now):
            self._note("swapped", swapped, self._evaluating)
        if stays := sorted(self._frozen - self._trainable_now()):
            self._note("frozen", stays, self._evaluating)
        state = _random_state()
        if self.draws and state in self._left and state != self._random and self._random not in self._started:
            self._note("again", [type(self.script.models()[0]).__name__], self._evaluating)
        self._left.add(state)
        self._started.add(self._random)
        self._evaluating = ""

    def around_update(self, optimizer: Any, update: Callable[[], Any]) -> Any:
        """Weights change after the end of a step if a second optimizer makes one."""
        self._swaps.updated()
        return update()

    def iterated(self, skipped: bool) -> None:
        """An evaluation may follow: what it finds is read now, since it may swap weights before it begins."""
        self._swaps.step_ends()
        self._trainable = self._trainable_now()
        self._random = _random_state()

    def _trainable_now(self) -> set[str]:
        return {name for name, parameter in self.script.parameters() if parameter.requires_grad}

    def _note(self, what: str, names: list[str], line: str) -> None:
        step = self.script.step + 1 if what == "off" else max(self.script.step, 1)
        self.found.setdefault(what, ModeFault(step=step, names=names, line=line))

    def facts(self) -> Any:
        """A record, Modes."""
        names, line = self._references.dropping()
        if names:
            self._note("reference", names, line)
        trains = len(self._on_steps) >= max(self.script.step - 1, 1)  # what looks like an evaluation in each step
        facts = Modes(
            steps=self.script.step,
            evaluations=self.evaluations,
            matters=self.matters,
            always_off=self.always_off,
            faults={what: one for what, one in self.found.items() if not (trains and what in OF_AN_EVALUATION)},
        )
        return msgspec.to_builtins(facts)


def _random_state() -> str:
    """A digest of what dropout draws from."""
    return " ".join(map(digest, random_states()))


def _active(model: Module) -> set[str]:
    """The names of the modules in training mode."""
    return {plain(name) or type(model).__name__ for name, module in model.named_modules() if module.training}


def _sensitive(torch: ModuleType, model: Module) -> list[str]:
    """The names of modules that do something else in evaluation mode."""
    dropouts = torch.nn.modules.dropout._DropoutNd
    norms = torch.nn.modules.batchnorm._NormBase
    return [
        plain(name) or type(model).__name__
        for name, module in model.named_modules()
        if (isinstance(module, dropouts) and module.p) or (isinstance(module, norms) and module.track_running_stats)
    ]
