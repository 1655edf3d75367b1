"""trained: every parameter that is meant to train has a gradient, is in an optimizer once, and moves.

A frozen one does not move in an update, and tied ones stay tied. Sharded parameters are seen by their shards.
"""

import math
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
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
from perfsuite.features.prove.relations._calls import CallHooks, ModuleCall, Strays, runs_of
from perfsuite.features.prove.relations._copies import CoarseCopies
from perfsuite.features.prove.relations._ties import Ties
from perfsuite.rank.memory.whereabouts import inner_model
from perfsuite.rank.norms import elements_of, local
from perfsuite.rank.script.probes import Probe, ProvedScript, digest, plain
from perfsuite.rank.script.watched import replace
from perfsuite.rank.torch_types import Module
from perfsuite.records.record import Record

FEWEST = 3  # updates after which a parameter without any gradient is told
WATCHED_UPDATES = 4  # in which frozen parameters are compared; a later one that moves, moves here as well


class ParameterTrace(Record, frozen=True, kw_only=True):
    """One parameter. ``ran`` is how its module ran: "" not at all, "no_grad", "cut" if its output's gradient has an end
    before the loss, "unused" if its output may be unused, "" if it is not known. ``spoiled`` is the first step that
    updated it with a gradient that is not finite, ``kept`` one whose gradient had that of the step before.
    """

    trains: bool
    optimizers: int
    has_gradient: bool = False
    nonzero: bool = False
    moved: bool = False
    tried: int = 0  # updates with a gradient and a learning rate
    dtype: str = ""
    ran: str = ""
    before: str = ""  # of a cut: the module that goes on
    line: str = ""  # of the user's code that calls it, or the module itself
    spoiled: int = 0
    kept: int = 0
    moved_frozen: int = 0


class ParameterTraces(Record, frozen=True, kw_only=True):
    """Of one rank. ``hidden`` are the class and line of modules that run in a model which does not have them, for each
    parameter. ``parted`` are names of what was one parameter, ``lost`` those of a model of which no optimizer has any,
    although all that the optimizers have is without a gradient. ``stuck_copies`` are dtypes of a copy's parameters.
    ``by_hand``: something else than a torch optimizer updates, so what is in one is not known.
    """

    parameters: dict[str, ParameterTrace]
    updates: int
    strangers: int  # parameters of optimizers that no trained module has
    untied: str = ""
    parted: list[tuple[str, str]] = []
    lost: list[str] = []
    stuck_copies: dict[str, str] = {}
    hidden: list[tuple[str, str]] = []
    by_hand: bool = False
    step_line: str = ""  # the user's, in which gradients are clipped or the optimizer steps
    optimizer_line: str = ""  # in which the first optimizer was made


class TrainedProbe(Probe):
    """Follows each parameter by its name."""

    def __init__(self, torch: ModuleType, script: ProvedScript) -> None:
        super().__init__(torch, script)
        self.updates = 0
        self.gradients: set[str] = set()
        self.nonzero: set[str] = set()
        self.nonfinite: set[str] = set()  # of this step
        self.spoiled: dict[str, int] = {}
        self.kept: dict[str, int] = {}
        self.frozen: dict[str, int] = {}
        self.moved: set[str] = set()
        self.tried: Counter[str] = Counter()
        self.least: dict[str, float] = {}  # of each gradient that a backward found there since its last update
        self.found: dict[str, weakref.ref[Any]] = {}  # the gradient itself
        self.before: dict[str, str] = {}  # digests of parameters that have not moved yet
        self.calls: list[ModuleCall] = []
        self.untied = ""
        self.ties = Ties(torch)
        self.parted: list[tuple[str, str]] = []
        self.lost: list[str] = []  # parameters with a gradient, while no module has any that an optimizer has
        self.fed = False  # an optimizer has a gradient
        self.copies: CoarseCopies | None = None
        self.line = ""
        self.made_line = ""
        self._read = False  # the gradients of this step
        self._recorded = 0  # forwards
        self.strays: Strays | None = None
        self.hidden: list[tuple[str, str]] = []  # class and line of modules that no model has
        replace(torch.optim.Optimizer, "__init__", self._making)

    def _making(self, make: Callable[..., None]) -> Callable[..., None]:
        def making(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            self.made_line = self.made_line or self.script.line()
            make(optimizer, *args, **kwargs)

        return making

    def around_forward(self, model: Module, args: Any, kwargs: Any, call: Callable[[], Any]) -> Any:
        """Record once which modules run in which order, and whether autograd records them."""
        if not model.training or self.updates != 1 or self._recorded or not self.torch.is_grad_enabled():
            if model.training and self.torch.is_grad_enabled() and not self.untied:
                self.untied = _untied(model)
                self.parted = self.parted or list(self.ties.parted(model))
            return call()
        if any(type(module).__name__ == "OptimizedModule" for module in model.modules()):
            return call()
        self._recorded += 1
        with CallHooks(self.script, model, self.calls), Strays(self.script, model) as self.strays:
            return call()

    def before_backward(self) -> None:
        """The first backward of a step must find no gradient."""
        for name, parameter in self._trained():
            there = 0.0 if parameter.grad is None else self._largest(parameter.grad)
            self.least[name] = min(there, self.least.get(name, there))
            if there:
                self.found[name] = weakref.ref(parameter.grad)
        self._look_before()

    def _look_before(self) -> None:
        for name, parameter in self.script.parameters():
            if name not in self.before:
                self.before[name] = digest(parameter)

    def before_optimizer(self) -> None:
        """Read the gradients of the step, once."""
        if self._read:
            return
        self._read = True
        self._look_before()  # gradients may come from no backward, as those of torch.func
        if not self.lost and next(self.script.parameters(), None) is None:
            named = (one for model in self.watched.models for one in inner_model(model).named_parameters())
            self.lost = [plain(name) for name, parameter in named if parameter.grad is not None]
        if self.strays is not None and not self.hidden:
            self.hidden = list(self.strays.trained())
        self.line = self.line or self.script.line()
        for name, parameter in self._trained():
            if parameter.grad is None:
                continue
            self.gradients.add(name)
            largest = self._largest(parameter.grad)
            if largest != largest or largest == float("inf"):
                self.nonfinite.add(name)
            elif largest:
                self.nonzero.add(name)

    def around_update(self, optimizer: Any, update: Callable[[], Any]) -> Any:
        """A frozen parameter is what it was after the update."""
        self.fed |= any(one.grad is not None for group in optimizer.param_groups for one in group["params"])
        frozen = [(name, parameter) for name, parameter in self.script.parameters() if not parameter.requires_grad]
        before = {name: digest(one) for name, one in frozen} if self.updates < WATCHED_UPDATES else {}
        rates = {id(parameter): float(group["lr"]) for group in optimizer.param_groups for parameter in group["params"]}
        for name, one in self._trained():
            if id(one) not in rates:
                continue
            least = self.least.pop(name, 0.0)  # since its last update, of which each optimizer has its own
            if one.grad is None or not (largest := self._largest(one.grad)):
                continue
            self.gradients.add(name)
            self.tried[name] += bool(rates[id(one)])
            if math.isfinite(largest):
                self.nonzero.add(name)
                if least and self.found[name]() is one.grad:  # and no other that was put in its place
                    self.kept.setdefault(name, self.script.step + 1)
        result = update()
        for name, one in frozen:
            if before and digest(one) != before[name]:
                self.frozen.setdefault(name, self.script.step + 1)
        return result

    def iterated(self, skipped: bool) -> None:
        """Compare the parameters with those before."""
        if not skipped:
            self.updates += 1
            self.copies = self.copies or CoarseCopies(self.torch, self.script.models())
            for name in self.nonfinite:
                self.spoiled.setdefault(name, self.script.step + 1)
        waiting = [(name, parameter) for name, parameter in self.script.parameters() if name not in self.moved]
        for name, one in waiting:
            if name in self.before and digest(one) != self.before[name]:
                self.moved.add(name)
        self._read = False
        self.nonfinite.clear()

    def facts(self) -> Any:
        """A record, ParameterTraces."""
        holders: Counter[int] = Counter()
        for optimizer in self.watched.optimizers.values():
            holders.update({id(parameter) for group in optimizer.param_groups for parameter in group["params"]})
        runs = runs_of(self.calls, self.gradients)
        parameters = list(self.script.parameters())
        known = {id(parameter) for _, parameter in parameters}
        traces = {
            name: ParameterTrace(
                trains=parameter.requires_grad,
                optimizers=holders[id(parameter)],
                has_gradient=name in self.gradients,
                nonzero=name in self.nonzero,
                moved=name in self.moved,
                tried=self.tried[name],
                dtype=str(parameter.dtype).removeprefix("torch."),
                ran=runs.get(name, ("", "", ""))[0],
                before=runs.get(name, ("", "", ""))[1],
                line=runs.get(name, ("", "", ""))[2],
                spoiled=self.spoiled.get(name, 0),
                kept=self.kept.get(name, 0),
                moved_frozen=self.frozen.get(name, 0),
            )
            for name, parameter in parameters
            if local(parameter).numel()
        }
        strangers = sum(one not in known for one in self.script.optimized)
        engine = self.watched.engine is not None
        return msgspec.to_builtins(
            ParameterTraces(
                parameters=traces,
                updates=self.updates,
                strangers=strangers,
                untied=self.untied,
                parted=self.parted,
                lost=[] if self.fed else self.lost,
                stuck_copies=self.copies.stuck(FEWEST) if self.copies else {},
                hidden=self.hidden,
                by_hand=engine or not self.watched.optimizers,
                step_line=self.line,
                optimizer_line=self.made_line,
            )
        )

    def _trained(self) -> Iterator[tuple[str, Any]]:
        return ((name, parameter) for name, parameter in self.script.parameters() if parameter.requires_grad)

    def _largest(self, gradient: Any) -> float:
        here = elements_of(local(gradient))
        return float(here.detach().abs().max()) if here.numel() else 0.0


def _untied(model: Module) -> str:
    """The output embedding of a model of transformers whose config ties it, if it is not tied."""
    inner: Any = inner_model(model)
    config = getattr(inner, "config", None)
    if not getattr(config, "tie_word_embeddings", False) or not hasattr(inner, "get_output_embeddings"):
        return ""
    ins, outs = inner.get_input_embeddings(), inner.get_output_embeddings()
    weights = [getattr(one, "weight", None) for one in (ins, outs)]
    if any(weight is None or hasattr(weight, "_local_tensor") or not weight.numel() for weight in weights):
        return ""
    if weights[0] is weights[1]:
        return ""
    names = {id(parameter): name for name, parameter in inner.named_parameters()}
    return plain(names.get(id(weights[1]), ""))


def _judge(seen: Seen) -> Judged:
    ranks = typed(seen, ParameterTraces)
    first, updates = ranks[0], min(rank.updates for rank in ranks)
    if not first.parameters and first.lost and updates >= FEWEST:
        return RELATION.broken(grouped("stale", first.lost, number=first.strangers, line=first.optimizer_line))
    if not first.parameters:
        raise CannotTry(Remark(what="no_parameters"))
    if updates < FEWEST:
        raise CannotTry(Remark(what="few", number=updates))
    merged = {name: [rank.parameters[name] for rank in ranks if name in rank.parameters] for name in first.parameters}
    trained = {name: some for name, some in merged.items() if some[0].trains}
    wrong = [
        *_about_gradients(trained, first),
        *_about_optimizers(trained, first),
        *_about_moves(trained, merged, first),
    ]
    if first.hidden:
        kind, line = first.hidden[0]
        wrong.append(Remark(what="hidden", subject=kind, number=len(first.hidden), line=line))
    if first.untied:
        wrong.append(Remark(what="untied", subject=first.untied))
    elif first.parted:
        (one, other), *more = first.parted
        wrong.append(Remark(what="parted", subject=other, other=one, more=len(more)))
    aside = grouped("unused", [name for name, some in trained.items() if _unused(some)]) if not wrong else []
    moved = sum(any(one.moved for one in some) for some in trained.values())
    return RELATION.broken(wrong, aside, Remark(what="held", number=moved, expected=len(merged) - len(trained)))


def _unused(some: Sequence[ParameterTrace]) -> bool:
    return not any(one.nonzero or one.moved for one in some)


def _about_gradients(trained: dict[str, list[ParameterTrace]], first: ParameterTraces) -> Iterator[Remark]:
    if first.by_hand:
        return
    if trained and not any(one.nonzero for some in trained.values() for one in some):
        yield Remark(what="no_gradients", line=first.step_line)
        return
    spoiled = {name: max(one.spoiled for one in some) for name, some in trained.items()}
    names = [name for name, step in spoiled.items() if step]
    yield from grouped("not_finite", names, step=spoiled[names[0]] if names else 0)
    kept = {name: max(one.kept for one in some) for name, some in trained.items() if some[0].optimizers}
    names = [name for name, step in kept.items() if step]
    yield from grouped("uncleared", names, step=kept[names[0]] if names else 0, line=first.step_line)
    held = {name: some for name, some in trained.items() if some[0].optimizers and not any(one.nonzero for one in some)}
    for how in ("no_grad", "cut"):
        names = [name for name, some in held.items() if some[0].ran == how and not some[0].has_gradient]
        one = held[names[0]][0] if names else None
        yield from grouped(how, names, other=one.before if one else "", line=one.line if one else "")
    ran = any(one.ran for some in trained.values() for one in some)
    zero = [name for name, some in held.items() if any(one.has_gradient for one in some)]
    yield from grouped("zero", [name for name in zero if held[name][0].ran or not ran])  # an expert without a token


def _about_optimizers(trained: dict[str, list[ParameterTrace]], first: ParameterTraces) -> Iterator[Remark]:
    if first.by_hand:
        return
    absent = [
        name
        for name, some in trained.items()
        if not some[0].optimizers and any(one.nonzero for one in some) and not any(one.moved for one in some)
    ]
    kind = "stale" if first.strangers else "absent"
    yield from grouped(kind, absent, number=first.strangers, line=first.optimizer_line)
    yield from grouped("twice", [name for name, some in trained.items() if some[0].optimizers > 1])


def _about_moves(
    trained: dict[str, list[ParameterTrace]], merged: dict[str, list[ParameterTrace]], first: ParameterTraces
) -> Iterator[Remark]:
    stuck = [
        name
        for name, some in trained.items()
        if max(one.tried for one in some) >= FEWEST and not any(one.moved for one in some)
    ]
    yield from grouped("stuck", stuck, other=trained[stuck[0]][0].dtype if stuck else "")
    copies = first.stuck_copies
    yield from grouped("copy", list(copies), other=next(iter(copies.values()), ""))
    frozen = {name: max(one.moved_frozen for one in some) for name, some in merged.items()}
    names = [name for name, step in frozen.items() if step]
    yield from grouped("frozen", names, step=frozen[names[0]] if names else 0)


RELATION = Relation(
    name="trained",
    order=10,
    asks="Every parameter that is meant to train has a gradient, is in an optimizer once, and moves.",
    probe=f"{__name__}:TrainedProbe",
    says={
        "held": "{number} parameters move, and {expected} frozen ones do not",
        "no_parameters": "no module was seen whose parameters an optimizer has",
        "few": "the script made {number} updates, and 3 are needed: let it train longer",
        "no_gradients": "no parameter has a gradient when the optimizer steps: is zero_grad() called between "
        "backward() and step()?",
        "not_finite": "the optimizer stepped with a gradient that is not finite, of {subject}, in step {step}",
        "uncleared": "the gradient of {subject} in step {step} has that of the step before it: is "
        "optimizer.zero_grad() called after each step?",
        "no_grad": "the optimizer has {subject}, but its module runs under torch.no_grad(): it learns nothing",
        "cut": "no gradient reaches {subject}: {other} goes on from tensors without one. Is an output detached?",
        "zero": "the gradient of {subject} is exactly 0 in each step: is it masked, or multiplied by 0?",
        "absent": "the optimizer does not have {subject}: gradients reach it, and nothing moves it. If that is meant, "
        "call requires_grad_(False)",
        "hidden": "{number} parameters get gradients, and no model has them: {subject} is called in the forward and "
        "was not registered. Keep modules in nn.ModuleList or nn.ModuleDict",
        "stale": "the optimizer does not have {subject}, but {number} parameters that no module has: was it made "
        "before the model was replaced or wrapped?",
        "twice": "two optimizers have {subject}: it is updated twice in each step",
        "stuck": "{subject} does not move in any update, in {other}: an update is smaller than its rounding. Keep "
        "float32 weights",
        "copy": "{subject} is written in each step and stays as it was, in {other}: what an average adds to a copy is "
        "smaller than its rounding. Keep averages in float32",
        "frozen": "{subject} is frozen, and the optimizer moved it in step {step}",
        "untied": "the config ties {subject} to the input embedding, but it is a parameter of its own",
        "parted": "{subject} was the same parameter as {other}, and is one of its own now: tie both again after "
        "to_empty() or load_state_dict(assign=True)",
        "unused": "no gradient reaches {subject}: its output does not reach the loss",
    },
    prove=by_own_run(_judge),
)
