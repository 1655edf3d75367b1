"""modes: the model trains in training mode, and an evaluation changes nothing that training reads.

Dropout and BatchNorm are what a mode changes. A part that is in evaluation mode while its model is not is meant so, as
where BatchNorm is frozen, unless an evaluation has called that part. A forward without gradients in each step, in
training mode, is no evaluation: a loss in parts needs it, and so do labels that the model makes for itself.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import msgspec

from perfsuite.features.prove.relation import (
    CannotTry,
    Judged,
    Relation,
    Remark,
    Seen,
    by_own_run,
    grouped,
    typed,
)
from perfsuite.features.prove.relations._changes import DROPOUT
from perfsuite.rank.memory.whereabouts import inner_model
from perfsuite.rank.script.probes import Probe, ProvedScript, plain
from perfsuite.rank.script.watched import replace
from perfsuite.rank.torch_types import Module
from perfsuite.records.record import Record


class Modes(Record, frozen=True, kw_only=True):
    """Steps count from 1; 0 is never. ``matters``: some module does something else in evaluation mode."""

    steps: int
    evaluations: int
    matters: bool
    always_off: bool  # the whole model, from the first step on
    off_step: int  # the first that trains modules which trained before, but are in evaluation mode now
    off: list[str]
    off_line: str
    on_step: int  # the step after which an evaluation ran in training mode
    on: list[str]
    on_line: str
    changed_step: int  # the step after which an evaluation changed parameters or buffers
    changed: list[str]
    changed_line: str
    drops_step: int  # the step after which an evaluation called a function of dropout
    drops: list[str]
    drops_line: str


class ModeProbe(Probe):
    """Looks at each outermost call of a trained module."""

    def __init__(self, torch: ModuleType, script: ProvedScript) -> None:
        super().__init__(torch, script)
        self.evaluations = 0
        self.matters = self.always_off = False
        self.trained: dict[int, set[str]] = {}  # of each model, what is in training mode when it first trains
        self.found: dict[str, tuple[int, list[str], str]] = {}  # step, names and line of each fault
        self._pending: dict[int, tuple[Module, set[str], str]] = {}  # until a backward: what is on, and the line
        self._evaluated: set[int] = set()  # modules that an evaluation has called in evaluation mode
        self._on_steps: set[int] = set()  # after which something ran without gradients in training mode
        self._evaluating = ""  # the line of an evaluation since the last update
        self._before: dict[str, str] = {}
        self._quiet = False  # a forward runs in which no module is in training mode
        for name in DROPOUT:
            replace(torch.nn.functional, name, self._dropping)

    def _dropping(self, drop: Callable[..., Any]) -> Callable[..., Any]:
        def dropping(input: Any, p: float = 0.5, training: bool = True, *args: Any, **kwargs: Any) -> Any:
            if self._quiet and training and p:
                self._note("drops", [drop.__name__], self.script.line())
            return drop(input, p, training, *args, **kwargs)

        return dropping

    def around_forward(self, model: Module, args: Any, kwargs: Any, call: Callable[[], Any]) -> Any:
        """Training, or an evaluation of the same module."""
        if not self._is_trained(model):
            return call()
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
        return call()

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
            self._before = self.script.digests()
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
            return
        now = self.script.digests_now()
        changed = [name for name, one in self._before.items() if name in now and now[name] != one]
        if changed:
            self._note("changed", changed, self._evaluating)
        self._evaluating = ""

    def iterated(self, skipped: bool) -> None:
        """An evaluation may follow: what it finds is read now, since it may swap weights before it begins."""
        self.script.digests()

    def _note(self, what: str, names: list[str], line: str) -> None:
        self.found.setdefault(what, (max(self.script.step, 1) if what != "off" else self.script.step + 1, names, line))

    def facts(self) -> Any:
        """A record, Modes."""
        fields: dict[str, Any] = {}
        if len(self._on_steps) >= max(self.script.step - 1, 1):  # of training itself
            self.found = {what: one for what, one in self.found.items() if what not in ("on", "changed")}
        for what in ("off", "on", "changed", "drops"):
            step, names, line = self.found.get(what, (0, [], ""))
            fields |= {f"{what}_step": step, what: names, f"{what}_line": line}
        facts = Modes(
            steps=self.script.step,
            evaluations=self.evaluations,
            matters=self.matters,
            always_off=self.always_off,
            **fields,
        )
        return msgspec.to_builtins(facts)


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


def _judge(seen: Seen) -> Judged:
    facts = typed(seen, Modes)
    first = max(facts, key=lambda fact: fact.evaluations)
    wrong: list[Remark] = []
    for what, step, names, line in (
        ("off", first.off_step, first.off, first.off_line),
        ("on", first.on_step, first.on, first.on_line),
        ("changed", first.changed_step, first.changed, first.changed_line),
        ("drops", first.drops_step, first.drops, first.drops_line),
    ):
        name = "always_off" if what == "off" and first.always_off else what
        wrong += grouped(name, names, step=step, line=line)
    if not wrong and not first.matters and not first.evaluations:
        raise CannotTry(Remark(what="nothing"))
    aside = [] if first.evaluations else [Remark(what="no_evaluation", number=first.steps)]
    held = Remark(what="held" if first.evaluations else "trains", number=first.steps, expected=first.evaluations)
    return RELATION.broken(wrong, aside, held)


RELATION = Relation(
    name="modes",
    order=40,
    asks="The model trains in training mode, and an evaluation changes nothing that training reads.",
    probe=f"{__name__}:ModeProbe",
    says={
        "held": "training mode in {number} steps; {expected} calls of an evaluation changed nothing",
        "trains": "training mode in {number} steps",
        "nothing": "the model has neither Dropout nor BatchNorm, and no evaluation was seen: let the script evaluate "
        "sooner, such as after 10 steps",
        "no_evaluation": "no evaluation was seen in {number} steps: let the script evaluate sooner",
        "off": "training goes on with {subject} in evaluation mode since step {step}: is model.train() called after "
        "the evaluation?",
        "always_off": "{subject} trains in evaluation mode from the first step on, without its dropout and BatchNorm: "
        "call model.train()",
        "on": "the evaluation after step {step} runs in training mode: {subject} is active. Call model.eval()",
        "drops": "the evaluation after step {step} drops values at random in {subject}(): does it get the argument "
        "training=self.training?",
        "changed": "the evaluation after step {step} changes {subject}, which training reads",
    },
    prove=by_own_run(_judge),
)
