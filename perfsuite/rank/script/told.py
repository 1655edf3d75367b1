"""What a script tells its optimizers in their first updates: the options and the size of each group of parameters.

A weight decay that got lost, or betas of other defaults, change the losses of a few steps by less than two orders of
summation may. A schedule shows in the learning rates of the first updates. Later ones are not read: how many a launch
makes is a setting.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from perfsuite.rank.torch_types import Module

UPDATES = 3
# How an update is computed and not which, by torch's own choice in most releases; and what schedulers keep.
ASIDE = ("params", "foreach", "fused", "capturable", "differentiable", "decoupled_weight_decay", "initial_lr")
Option = bool | int | float | str | None


class Told:
    """What optimizers were told so far, each by its number in the order of their first updates."""

    def __init__(self) -> None:
        self._updates: Counter[int] = Counter()
        self._values: dict[tuple[int, str, int, str], list[str]] = {}  # by optimizer, its class, group and option

    def note(self, number: int, optimizer: Any, modules: Iterable[Module]) -> None:
        """Read the groups of an optimizer that is about to update, which has parameters of these modules."""
        if self._updates[number] >= UPDATES:
            return
        self._updates[number] += 1
        kinds = {
            id(one): f"{type(inner).__name__}.{name}"
            for module in modules
            for inner in module.modules()
            for name, one in inner.named_parameters(recurse=False)
        }
        for at, group in enumerate(optimizer.param_groups):
            counts = Counter(kinds[id(one)] for one in group["params"] if id(one) in kinds)
            of_kinds = [(f"{kind} tensors", f"{count:,}") for kind, count in sorted(counts.items())]
            for name, value in (*_options(group), *of_kinds):
                self._values.setdefault((number, type(optimizer).__name__, at, name), []).append(value)

    def facts(self) -> list[str]:
        """``AdamW group 1: weight_decay 0.1``. A group has no number if it is the only one, nor has an optimizer."""
        groups = {(number, at) for number, _, at, _ in self._values}
        facts = []
        for (number, kind, at, name), values in self._values.items():
            several = sum(one == number for one, _ in groups) > 1
            whose = f"{kind}{f' {number}' if len(self._updates) > 1 else ''}{f' group {at}' if several else ''}"
            said = values[0] if len(set(values)) == 1 else f"{', '.join(values)} in the first updates"
            facts.append(f"{whose}: {name} {said}")
        return facts


def _options(group: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The options of a group as texts, and how many tensors and elements of this rank it has. An option that is off is
    left out, since another release may not have it.
    """
    parameters = group["params"]
    yield "tensors", f"{len(parameters):,}"
    yield "elements", f"{sum(one.numel() for one in parameters):,}"
    for name, value in group.items():
        off = value is None or value is False
        if name not in ASIDE and not off and (text := _text(value)):
            yield name, text


def _text(value: Any) -> str:
    """A number, a switch, a name or several of them; empty for any other object. A learning rate may be a tensor."""
    if isinstance(value, tuple | list):
        texts = [_text(one) for one in value]
        return f"({', '.join(texts)})" if all(texts) else ""
    if hasattr(value, "numel") and hasattr(value, "item") and value.numel() == 1:
        value = value.item()
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value) if isinstance(value, Option) else ""
