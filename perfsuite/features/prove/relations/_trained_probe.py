"""What happens to each parameter of a script: its gradients, the optimizers that have it, and whether it moves."""

import itertools
import math
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import msgspec

from perfsuite.features.prove.relations._adapters import trained_base
from perfsuite.features.prove.relations._calls import CallHooks, ModuleCall, Strays, outside_of, runs_of
from perfsuite.features.prove.relations._clips import Clips
from perfsuite.features.prove.relations._copies import CoarseCopies, Twins
from perfsuite.features.prove.relations._masters import unlike_masters
from perfsuite.features.prove.relations._parameter_traces import ParameterTrace, ParameterTraces
from perfsuite.features.prove.relations._ties import Ties, in_one_memory
from perfsuite.rank.memory.whereabouts import inner_model
from perfsuite.rank.norms import elements_of, local, shards_of
from perfsuite.rank.script.probes import Probe, ProvedScript, digest, plain
from perfsuite.rank.script.watched import replace
from perfsuite.rank.torch_types import Module

PROBE = f"{__name__}:TrainedProbe"
FEWEST = 3  # updates after which a parameter without any gradient is told
WATCHED_UPDATES = 4  # in which frozen parameters are compared; a later one that moves, moves here as well


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
        self.idle: Counter[str] = Counter()
        self.least: dict[str, float] = {}  # of each gradient that a backward found there since its last update
        self.found: dict[str, weakref.ref[Any]] = {}  # the gradient itself
        self.before: dict[str, str] = {}  # digests of parameters that have not moved yet
        self.calls: list[ModuleCall] = []
        self.untied = ""
        self.ties = Ties(torch)
        self.clips = Clips(torch, script)
        self.parted: list[tuple[str, str]] = []
        self.shared: list[tuple[str, str]] = []
        self.turns: list[int] = []  # the optimizers of all updates
        self.undone: list[str] | None = None  # of DeepSpeed
        self.twins = Twins()
        self.lost: list[str] = []  # parameters with a gradient, while no module has any that an optimizer has
        self.outside: list[str] = []  # parameters with a gradient, beside a trained module
        self.fed = False  # an optimizer has a gradient
        self.copies: CoarseCopies | None = None
        self.parameters: list[tuple[str, Any]] = []  # after the last step: the script may merge them then
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
        if not self.updates and self.torch.is_grad_enabled():
            self.twins.called(model)
        if not model.training or self.updates != 1 or self._recorded or not self.torch.is_grad_enabled():
            if model.training and self.torch.is_grad_enabled() and not self.untied:
                self.untied = _untied(model)
                self.parted = self.parted or list(self.ties.parted(model))
                self.shared = self.shared or ([] if self.updates else list(in_one_memory(model)))
            return call()
        if any(type(module).__name__ == "OptimizedModule" for module in model.modules()):
            return call()
        self._recorded += 1
        with CallHooks(self.script, model, self.calls), Strays(self.script, model) as self.strays:
            return call()

    def before_backward(self) -> None:
        """The first backward of a step must find no gradient."""
        self.clips.goes_backward()
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
        """Read the gradients of the step, once. The first one tells what DeepSpeed's engine has."""
        if self.undone is None and self.watched.engine is not None and not self.updates:
            with self.torch.no_grad():
                self.undone = list(unlike_masters(self.torch, self.script))
        if self._read:
            return
        self._read = True
        self._look_before()  # gradients may come from no backward, as those of torch.func
        if not self.lost and next(self.script.parameters(), None) is None:
            named = (one for model in self.watched.models for one in inner_model(model).named_parameters())
            self.lost = [plain(name) for name, parameter in named if parameter.grad is not None]
        if self.updates == 1 and not any(map(shards_of, self.script.models())):
            self.outside = [name for name, one in outside_of(self.script) if self._is_left_out(one)]
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

    def _is_left_out(self, parameter: Any) -> bool:
        gradient = parameter.grad if parameter.requires_grad and id(parameter) not in self.script.optimized else None
        return gradient is not None and bool(self._largest(gradient))

    def around_update(self, optimizer: Any, update: Callable[[], Any]) -> Any:
        """A frozen parameter is what it was after the update."""
        self.fed |= any(one.grad is not None for group in optimizer.param_groups for one in group["params"])
        frozen = [(name, parameter) for name, parameter in self.script.parameters() if not parameter.requires_grad]
        before = {name: digest(one) for name, one in frozen} if self.updates < WATCHED_UPDATES else {}
        rates = {id(parameter): _rate(group) for group in optimizer.param_groups for parameter in group["params"]}
        for name, one in self._trained():
            if id(one) not in rates:
                continue
            least = self.least.pop(name, 0.0)  # since its last update, of which each optimizer has its own
            if one.grad is None or not (largest := self._largest(one.grad)):
                continue
            self.gradients.add(name)
            rate, base = rates[id(one)]
            self.tried[name] += bool(rate)
            self.idle[name] += not (rate or base)
            if math.isfinite(largest):
                self.nonzero.add(name)
                if least and self.found[name]() is one.grad:  # and no other that was put in its place
                    self.kept.setdefault(name, self.script.step + 1)
        self.clips.updates(optimizer)
        self.turns.append(id(optimizer))
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
        self.parameters = list(self.script.parameters())
        self._read = False
        self.nonfinite.clear()

    def facts(self) -> Any:
        """A record, ParameterTraces."""
        holders: Counter[int] = Counter()
        for optimizer in self.watched.optimizers.values():
            holders.update({id(parameter) for group in optimizer.param_groups for parameter in group["params"]})
        changes = sum(before != after for before, after in itertools.pairwise(self.turns))
        by_turns = changes >= len({*self.turns})  # one comes back; stages of training follow each other
        runs = runs_of(self.calls, self.gradients)
        known = {id(parameter) for _, parameter in self.parameters}
        traces = {
            name: ParameterTrace(
                trains=parameter.requires_grad,
                optimizers=holders[id(parameter)] if by_turns else min(holders[id(parameter)], 1),
                has_gradient=name in self.gradients,
                nonzero=name in self.nonzero,
                moved=name in self.moved,
                tried=self.tried[name],
                idle=self.idle[name] if self.script.ended else 0,  # the script may set one later
                dtype=str(parameter.dtype).removeprefix("torch."),
                ran=runs.get(name, ("", "", ""))[0],
                before=runs.get(name, ("", "", ""))[1],
                line=runs.get(name, ("", "", ""))[2],
                spoiled=self.spoiled.get(name, 0),
                kept=self.kept.get(name, 0),
                moved_frozen=self.frozen.get(name, 0),
            )
            for name, parameter in self.parameters
            if local(parameter).numel()
        }
        strangers = sum(one not in known for one in self.script.optimized)
        engine = self.watched.engine is not None
        clips, clip_line = self.clips.wrong()
        return msgspec.to_builtins(
            ParameterTraces(
                parameters=traces,
                updates=self.updates,
                strangers=strangers,
                untied=self.untied,
                parted=self.parted,
                shared=self.shared,
                undone=self.undone or [],
                base=[name for model in self.script.models() for name in trained_base(model)],
                unfrozen=[name for model in self.script.models() for name in _unfrozen(model)],
                twin=self.twins.among(self.script.models()),
                lost=[] if self.fed else self.lost,
                outside=self.outside,
                stuck_copies=self.copies.stuck(FEWEST) if self.copies else {},
                hidden=self.hidden,
                by_hand=engine or not self.watched.optimizers,
                step_line=self.line,
                optimizer_line=self.made_line,
                clips=clips,
                clip_line=clip_line,
            )
        )

    def _trained(self) -> Iterator[tuple[str, Any]]:
        return ((name, parameter) for name, parameter in self.script.parameters() if parameter.requires_grad)

    def _largest(self, gradient: Any) -> float:
        here = elements_of(local(gradient))
        return float(here.detach().abs().max()) if here.numel() else 0.0


def _rate(group: dict[str, Any]) -> tuple[float, float]:
    """The learning rate now, and that which a scheduler starts from."""
    return float(group["lr"]), float(group.get("initial_lr", 0.0))


def _unfrozen(model: Module) -> Iterator[str]:
    """The modules with ``requires_grad = False``, which is an attribute of parameters, and freezes nothing here."""
    for name, module in inner_model(model).named_modules():
        said = vars(module).get("requires_grad") is False
        if said and any(parameter.requires_grad for parameter in module.parameters()):
            yield plain(name) or type(module).__name__


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
