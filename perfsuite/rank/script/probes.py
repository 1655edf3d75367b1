"""Probes: what watches a script's first steps from inside of its ranks, for a relation that its training must satisfy.

A probe is a class that a job names. It overrides the moments that it needs, and its facts are data that JSON has.
"""

import hashlib
import importlib
import itertools
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial, reduce
from pathlib import Path
from types import ModuleType
from typing import Any

from perfsuite.rank.contents import content_of
from perfsuite.rank.memory.whereabouts import inner_model
from perfsuite.rank.norms import with_storage
from perfsuite.rank.script.watched import LoopMoments, Watched
from perfsuite.rank.torch_types import Module, Tensor
from perfsuite.rank.users_lines import UsersLines
from perfsuite.records.job import Proving

LAST = "last_step"  # a file of the cell: the number of the step after which all ranks end
AHEAD = 2  # steps: no rank is further than one ahead of another that it exchanges gradients with
WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")  # parts of names that nobody wrote


class Probe:
    """Base class. Each method but facts() is called in the rank, at that moment of the script's loop."""

    def __init__(self, torch: ModuleType, script: "ProvedScript") -> None:
        self.torch, self.script = torch, script
        self.watched = script.watched

    def imported(self, module: ModuleType) -> None:
        """A library that perfsuite attaches to is imported."""

    def around_forward(self, model: Module, args: Any, kwargs: Any, call: Callable[[], Any]) -> Any:
        """The outermost call of a module."""
        return call()

    def before_backward(self) -> None:
        """A loss goes backward."""

    def before_optimizer(self) -> None:
        """The gradients of a step are whole: before they are clipped, and again before the optimizer."""

    def around_update(self, optimizer: Any, update: Callable[[], Any]) -> Any:
        """The step of an optimizer."""
        return update()

    def iterated(self, skipped: bool) -> None:
        """A step has ended, perhaps without its update."""

    def facts(self) -> Any:
        """What was seen."""
        raise NotImplementedError


class ProvedScript:
    """The probes of this process, and what they share."""

    def __init__(self, torch: ModuleType, watched: Watched, proving: Proving, folder: Path) -> None:
        self.torch, self.watched, self.proving, self.folder = torch, watched, proving, folder
        self.lines = UsersLines()
        self.step = 0  # that have ended
        self.updates = 0  # those of them that were not skipped
        self.dropout = False  # some was taken out
        self.changed = False  # the script called what a change replaces
        self.ended = False  # the script by itself
        self._begun = 0.0
        self._world_size = 1
        self._digests: tuple[int, dict[str, str]] = (-1, {})
        self._prefixes: dict[int, str] = {}  # of the names in each model: the first has none
        self._shards: dict[int, dict[str, Tensor]] = {}  # of each model: fully_shard puts whole ones in their place
        self.on_import: dict[str, list[Callable[[ModuleType], None]]] = defaultdict(list)  # what changes a library
        watched.allow_updates(not proving.frozen)
        for change in proving.changes:
            load(change.function)(torch, self, change.value)
        self.probes = {name: load(name)(torch, self) for name in proving.probes}
        before = {name: self._each(name) for name in ("before_backward", "before_optimizer")}
        watched.follow(LoopMoments(**before, around_forward=self._forward, around_update=self._update))

    def imported(self, module: ModuleType) -> None:
        """A library is imported that perfsuite attaches to."""
        for change in self.on_import[module.__name__]:
            change(module)
        for probe in self.probes.values():
            probe.imported(module)

    def iterated(self, skipped: bool, rank: int) -> bool:
        """A step has ended. Whether it was the last one."""
        with self.watched.away():
            for probe in self.probes.values():
                probe.iterated(skipped)
        ahead = AHEAD if self.world_size > 1 else 0
        self.step += 1
        self.updates += not skipped
        self.watched.allow_updates(not self.proving.frozen or self.updates >= self.proving.steps - 1)
        self.watched.forget()
        self._begun = self._begun or time.monotonic()
        file = self.folder / LAST
        if rank == 0 and not file.exists() and self._is_enough():
            part = file.with_suffix(".part")
            part.write_text(str(self.step + ahead))
            part.rename(file)
        return file.exists() and self.step >= int(file.read_text())

    def _is_enough(self) -> bool:
        return self.updates >= self.proving.steps and time.monotonic() - self._begun >= self.proving.seconds

    def observed(self) -> dict[str, Any]:
        """The facts of all probes."""
        with self.watched.away():
            return {name: probe.facts() for name, probe in self.probes.items()}

    @property
    def world_size(self) -> int:
        """The ranks of the script, also after it has left its group."""
        dist = self.torch.distributed
        if dist.is_available() and dist.is_initialized():
            self._world_size = int(dist.get_world_size())
        return self._world_size

    @property
    def repeats(self) -> bool:
        """Whether a launch with the same numbers makes the same: a GPU's kernels may add in any order."""
        cuda = self.torch.cuda
        on_gpu = cuda.is_available() and cuda.is_initialized()
        return not on_gpu or bool(self.torch.are_deterministic_algorithms_enabled())

    @property
    def exact_losses(self) -> list[str]:
        """The losses of the step, each as a text of all its digits."""
        return [float(loss).hex() for loss in self.watched.losses]

    @property
    def optimized(self) -> dict[int, Tensor]:
        """The parameters of all optimizers, by their id."""
        optimizers = (*self.watched.optimizers.values(), *self.watched.made)
        return {
            id(parameter): parameter
            for optimizer in optimizers
            for group in optimizer.param_groups
            for parameter in group["params"]
        }

    def parameters(self) -> Iterator[tuple[str, Tensor]]:
        """Those of the modules that are trained, by their names in the script. A tied one has its first name."""
        for first, model in self._by_prefix():
            yield from ((first + plain(name), parameter) for name, parameter in self._parameters_of(model))

    def buffers(self) -> Iterator[tuple[str, Tensor]]:
        """The buffers of the same modules."""
        for first, model in self._by_prefix():
            yield from ((first + plain(name), buffer) for name, buffer in inner_model(model).named_buffers())

    @property
    def is_updating(self) -> bool:
        """Whether the step that runs changes the weights."""
        return self.watched.updates

    def _by_prefix(self) -> Iterator[tuple[str, Module]]:
        for model in self.models():
            inner = inner_model(model)
            if id(inner) not in self._prefixes:
                kind, alike = type(inner).__name__, {*self._prefixes.values()}
                free = (f"{kind}{number or ''}." for number in itertools.chain([0], itertools.count(2)))
                self._prefixes[id(inner)] = next(one for one in free if one not in alike) if alike else ""
            yield self._prefixes[id(inner)], model

    def _parameters_of(self, model: Module) -> Iterator[tuple[str, Tensor]]:
        """As the optimizer has them: the shards, also while fully_shard has gathered them."""
        inner = inner_model(model)
        shards = self._shards.get(id(inner), {})
        return ((name, shards.get(name, parameter)) for name, parameter in inner.named_parameters())

    def models(self) -> list[Module]:
        """The outermost modules that are trained: an optimizer has one of their parameters, or DeepSpeed's engine."""
        optimized, models = self.optimized, self.watched.models
        if self.watched.engine is not None:
            return models
        return [
            model
            for model in models
            if hasattr(model, "zero_optimization_stage")  # an engine's own optimizer has parts of them, before it steps
            or any(id(parameter) in optimized for _, parameter in self._parameters_of(model))
        ]

    def digests(self) -> dict[str, str]:
        """Of all parameters and buffers as they are between two steps: computed once for each."""
        if self._digests[0] != self.step:
            self._digests = (self.step, self.digests_now())
        return self._digests[1]

    def digests_now(self) -> dict[str, str]:
        """The same at this moment."""
        return {name: digest(parameter) for name, parameter in (*self.parameters(), *self.buffers())}

    def line(self) -> str:
        """The user's line that runs: ``train.py:14 in step``; empty if none does."""
        return self.lines.innermost(sys._getframe(1))

    def _each(self, moment: str) -> Callable[[], None]:
        def call() -> None:
            if self._is_transformed:
                return
            with self.watched.away():
                for probe in self.probes.values():
                    getattr(probe, moment)()

        return call

    @property
    def _is_transformed(self) -> bool:
        """Whether torch.func transforms what runs: its tensors have no numbers that could be read."""
        return self.torch._C._functorch.maybe_current_level() is not None

    def _forward(self, model: Module, args: Any, kwargs: Any, call: Callable[[], Any]) -> Any:
        if self._is_transformed:
            return call()
        if id(inner := inner_model(model)) not in self._shards:
            named = inner.named_parameters()
            self._shards[id(inner)] = {name: one for name, one in named if hasattr(one, "_local_tensor")}

        def around(inner: Callable[[], Any], probe: Probe) -> Callable[[], Any]:
            return partial(probe.around_forward, model, args, kwargs, inner)

        return reduce(around, self.probes.values(), call)()

    def _update(self, optimizer: Any, update: Callable[[], Any]) -> Any:
        def around(inner: Callable[[], Any], probe: Probe) -> Callable[[], Any]:
            return partial(probe.around_update, optimizer, inner)

        return reduce(around, self.probes.values(), update)()


def load(name: str) -> Any:
    """What ``"module:name"`` names."""
    module, _, what = name.partition(":")
    return getattr(importlib.import_module(module), what)


def plain(name: str) -> str:
    """A parameter's name without the parts that wrappers add to it."""
    return ".".join(part for part in name.split(".") if part not in WRAPPERS)


def digest(tensor: Tensor) -> str:
    """A fingerprint of this rank's numbers of a tensor. Equal bits have the same."""
    hashed = hashlib.blake2b(digest_size=8)
    for part in with_storage(tensor.detach()):
        here = part.contiguous().cpu()
        hashed.update(content_of(here))  # numpy() would keep FSDP from freeing the tensor
    return hashed.hexdigest()
