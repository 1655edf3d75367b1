"""What a script begins with: the weights of its modules, and the data of its first iterations.

It is read outside of measured steps: weights when a module is called for the first time, data as they are read.
"""

import inspect
from collections.abc import Collection
from typing import Any

from perfsuite.rank.contents import digests_in, digests_of_module, folded
from perfsuite.rank.memory.whereabouts import inner_model
from perfsuite.rank.torch_types import Module

ITERATIONS = 3
MOST = 4  # contents of one name


class FirstData:
    """Of this process: digests by name, and those of data in the order in which they came."""

    def __init__(self) -> None:
        self._weights: list[tuple[int, str, dict[str, str]]] = []  # a module's id and class, with its digests
        self.batches: dict[str, list[str]] = {}
        self.inputs: dict[str, list[str]] = {}
        self._called: dict[int, Module] = {}
        self._parameters: set[int] = set()
        self._iterations = 0

    @property
    def is_open(self) -> bool:
        """Whether what comes is still read."""
        return self._iterations < ITERATIONS

    def read(self, batch: Any) -> None:
        """A DataLoader has given a batch."""
        if self.is_open:
            _add(self.batches, folded(dict(digests_in(batch))))

    def called(self, module: Module, args: Any, kwargs: Any, trains: bool) -> None:
        """A module is about to be called outermost. It ``trains`` if autograd may record it."""
        if not self.is_open:
            return
        inner = inner_model(getattr(module, "_orig_mod", module))
        if id(module) not in self._called:
            self._called[id(module)] = module
            tensors = {id(parameter) for parameter in (*module.parameters(), *module.buffers())}
            if not tensors <= self._parameters:  # else it is a part of another one, or has none
                self._parameters |= tensors
                self._weights.append((id(module), type(inner).__name__, digests_of_module(module)))
        if trains:
            names = [
                name for name, parameter in _parameters_of(inner).items() if parameter.kind != parameter.VAR_POSITIONAL
            ]
            named = {names[at] if at < len(names) else f"item {at}": value for at, value in enumerate(args)}
            _add(self.inputs, folded(dict(digests_in(named | kwargs))))

    def iterated(self) -> None:
        """An iteration has ended. The modules are forgotten once none is awaited any more: a script may free one."""
        self._iterations += 1
        if not self.is_open:
            self._called.clear()

    def weights(self, trained: Collection[int]) -> dict[str, str]:
        """Of all modules, first those that are ``trained``, by their ids. A path that another one has, too, begins with
        the class of its module.
        """
        named: dict[str, str] = {}
        for _, kind, found in sorted(self._weights, key=lambda weight: weight[0] not in trained):
            while found.keys() & named.keys():
                found = {f"{kind}.{path}": one for path, one in found.items()}
            named |= found
        return named


def _parameters_of(module: Module) -> dict[str, inspect.Parameter]:
    try:
        return dict(inspect.signature(module.forward).parameters)
    except (TypeError, ValueError):  # it is no function of Python's
        return {}


def _add(known: dict[str, list[str]], found: dict[str, str]) -> None:
    for name, one in found.items():
        digests = known.setdefault(name, [])
        if len(digests) < MOST:
            digests.append(one)
