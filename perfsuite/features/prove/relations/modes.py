"""modes: the model trains in training mode, and an evaluation changes nothing that training reads.

Dropout and BatchNorm are what a mode changes. A module that is in evaluation mode from the first step on is meant so,
if the whole model is not.
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
        self.trained: set[str] | None = None  # the modules that are in training mode in the first step
        self.found: dict[str, tuple[int, list[str], str]] = {}  # step, names and line of each fault
        self._pending: tuple[list[str], str] | None = None  # modules that are off, until a backward follows
        self._evaluating = ""  # the line of an evaluation since the last update
        self._before: dict[str, str] = {}
        self._on: set[str] = set()  # the modules that are in training mode in this forward
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
        on = {plain(name) or type(inner).__name__ for name, module in inner.named_modules() if module.training}
        sensitive = _sensitive(self.torch, inner)
        self.matters |= bool(sensitive)
        off = [name for name in self.trained or () if name not in on]
        if self.trained is None:
            off = [] if on or not sensitive else [type(inner).__name__]
        self._pending = (off, self.script.line())
        self._on = on
        return call()

    def before_backward(self) -> None:
        """The forward before it was of training."""
        if self._pending is None:
            return
        off, line = self._pending
        if self.trained is None:
            self.trained = self._on
            self.always_off = bool(off)
            if off:
                self._note("off", off, line)
        elif off and not self.always_off:
            self._note("off", off, line)
        self._pending = None

    def _evaluation(self, model: Module, call: Callable[[], Any]) -> Any:
        if self.trained is None or not self.script.step:  # what is before training may be anything
            return call()
        self.evaluations += 1
        line = self.script.line()
        if not self._evaluating:
            self._evaluating = line or "an evaluation"
            self._before = self.script.digests()
        names = [name for name, module in inner_model(model).named_modules() if module.training]
        active = [name for name in _sensitive(self.torch, inner_model(model)) if name in {*map(plain, names)}]
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
    return RELATION.broken(wrong, aside, Remark(what="held", number=first.steps, expected=first.evaluations))


RELATION = Relation(
    name="modes",
    order=40,
    asks="The model trains in training mode, and an evaluation changes nothing that training reads.",
    probe=f"{__name__}:ModeProbe",
    says={
        "held": "training mode in {number} steps; {expected} calls of an evaluation changed nothing",
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
