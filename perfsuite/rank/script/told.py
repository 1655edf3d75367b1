"""What a script tells its optimizers: the options and the size of each group of parameters, and its schedules.

A weight decay that got lost, or betas of other defaults, change the losses of a few steps by less than two orders of
summation may. Options are read in the first updates, and learning rates in all: how many a launch makes is a setting.
"""

import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from perfsuite.rank.contents import content_of
from perfsuite.rank.torch_types import LRScheduler, Module

UPDATES = 3
MOST_RATES = 64  # updates: a baseline keeps them
FLOATS: dict[str, Any] = {"torch.float32": "f", "torch.float64": "d"}  # for memoryview
# How an update is computed and not which, by torch's own choice in most releases; and what schedulers keep.
ASIDE = ("params", "foreach", "fused", "capturable", "differentiable", "decoupled_weight_decay", "initial_lr")
COUNTERS = ("last_epoch", "verbose", "base_lrs")  # of a schedule, beside the rates themselves
Option = bool | int | float | str | None


class Told:
    """What optimizers were told so far, each by its number in the order of their first updates."""

    def __init__(self) -> None:
        self._updates: Counter[int] = Counter()
        self._values: dict[tuple[int, str, int, str], list[str]] = {}  # by optimizer, its class, group and option
        self._rates: dict[tuple[int, str, int], list[float]] = {}  # the same without an option
        self._made: weakref.WeakSet[LRScheduler] = weakref.WeakSet()  # schedules that are not read yet
        self._schedules: dict[str, None] = {}  # facts

    def makes(self, schedule: LRScheduler) -> None:
        """A schedule is made. It has no options before the class's own code has run."""
        self._made.add(schedule)

    def note(self, number: int, optimizer: Any, modules: Iterable[Module]) -> None:
        """Read the groups of an optimizer that is about to update, which has parameters of these modules."""
        for at, group in enumerate(optimizer.param_groups):
            rates = self._rates.setdefault((number, type(optimizer).__name__, at), [])
            if len(rates) == self._updates[number] < MOST_RATES and (rate := _rate(group.get("lr"))) is not None:
                rates.append(rate)
        self._updates[number] += 1
        if self._updates[number] > UPDATES:
            return
        while self._made:
            self._schedules |= dict.fromkeys(_of_schedule(self._made.pop()))
        kinds = {
            id(parameter): f"{type(inner).__name__}.{name}"
            for module in modules
            for inner in module.modules()
            for name, parameter in inner.named_parameters(recurse=False)
        }
        for at, group in enumerate(optimizer.param_groups):
            counts = Counter(kinds[id(parameter)] for parameter in group["params"] if id(parameter) in kinds)
            of_kinds = [(f"{kind} tensors", f"{count:,}") for kind, count in sorted(counts.items())]
            for name, value in (*_options(group), *of_kinds):
                self._values.setdefault((number, type(optimizer).__name__, at, name), []).append(value)

    def facts(self) -> list[str]:
        """``AdamW group 1: weight_decay 0.1``, ``LinearLR: total_iters 5``."""
        facts = []
        for (number, kind, at, name), values in self._values.items():
            said = values[0] if len(set(values)) == 1 else f"{', '.join(values)} in the first updates"
            facts.append(f"{self._name(number, kind, at)}: {name} {said}")
        return [*facts, *self._schedules]

    def rates(self) -> dict[str, list[float | None]]:
        """The learning rate of each group in each update."""
        return {self._name(*group): [*rates] for group, rates in self._rates.items() if rates}

    def _name(self, number: int, kind: str, at: int) -> str:
        """``AdamW group 1``. A group has no number if it is the only one, nor has an optimizer."""
        several = sum(one == number for one, _, _ in self._rates) > 1
        return f"{kind}{f' {number}' if len(self._updates) > 1 else ''}{f' group {at}' if several else ''}"


def _rate(rate: Any) -> float | None:
    """A learning rate, which may be a tensor of a CPU: it is read without an operator. None for what cannot be."""
    if isinstance(rate, int | float):
        return float(rate)
    if not hasattr(rate, "data_ptr") or rate.device.type != "cpu" or rate.numel() != 1:
        return None
    kind = FLOATS.get(str(rate.dtype))
    return float(content_of(rate).cast(kind)[0]) if kind else None


def _of_schedule(schedule: LRScheduler) -> Iterator[str]:
    """``schedule LinearLR``, and each option of it."""
    kind = type(schedule).__name__
    yield f"schedule {kind}"
    for name, value in vars(schedule).items():
        off = value is None or value is False
        if not off and not name.startswith("_") and name not in COUNTERS and (text := _text(value)):
            yield f"{kind}: {name} {text}"


def _options(group: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The options of a group as texts, and how many tensors and elements of this rank it has. An option that is off is
    left out, since another release may not have it.
    """
    parameters = group["params"]
    yield "tensors", f"{len(parameters):,}"
    yield "elements", f"{sum(parameter.numel() for parameter in parameters):,}"
    for name, value in group.items():
        off = value is None or value is False
        if name not in ASIDE and not off and (text := _text(value)):
            yield name, text


def _text(value: Any) -> str:
    """A number, a switch, a name, a function or several of them; empty for any other object. A learning rate may be a
    tensor.
    """
    if isinstance(value, tuple | list):
        texts = [_text(one) for one in value]
        return f"({', '.join(texts)})" if all(texts) else ""
    if hasattr(value, "numel") and hasattr(value, "item") and value.numel() == 1:
        value = value.item()
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Option):
        return str(value)
    return _text_of_function(value) if callable(value) else ""


def _text_of_function(function: Callable[..., Any]) -> str:
    """``warmup(steps=10)``: its name, with what a partial has fixed."""
    inner = getattr(function, "func", function)  # of functools.partial
    fixed = [f"{name}={text}" for name, value in getattr(function, "keywords", {}).items() if (text := _text(value))]
    name = getattr(inner, "__qualname__", type(inner).__qualname__)
    return f"{name}({', '.join(fixed)})" if fixed else name
