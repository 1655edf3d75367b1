"""The module of the model for which an operator runs, in forward and, by the order of autograd's nodes, in backward."""

import bisect
import contextlib
import re
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch

_WRAPPERS = re.compile(r"(_fsdp_wrapped_module|_checkpoint_wrapped_module|_orig_mod)\.|^module\.")


_sequence_number: Any = torch.autograd._get_sequence_nr  # type: ignore[attr-defined]


class ModulePlaces:
    """Follows the calls of modules. ``here`` names the innermost, or the one whose node is evaluated."""

    def __init__(self) -> None:
        self._stack: list[str] = []
        self._names: dict[int, str] = {}
        self._numbers: list[int] = []  # of autograd's sequence, at which the innermost module changed
        self._modules: list[str] = []

    def here(self) -> str:
        """The module's path from the model; empty outside of all."""
        if self._stack:
            return self._stack[-1]
        node: Any = torch._C._current_autograd_node()
        if node is None:
            return ""
        number = bisect.bisect_right(self._numbers, node._sequence_nr()) - 1
        return self._modules[number] if 0 <= number < len(self._modules) - 1 else ""

    @contextlib.contextmanager
    def followed(self) -> Iterator[None]:
        """Inside, calls of modules are followed."""
        call: Any = torch.nn.Module.__call__

        def follow(module: Any, *arguments: Any, **options: Any) -> Any:
            self._stack.append(self._name(module))
            self._note(self._stack[-1])
            try:
                return call(module, *arguments, **options)
            finally:
                self._stack.pop()
                self._note(self._stack[-1] if self._stack else "")

        with mock.patch.object(torch.nn.Module, "__call__", follow):
            yield

    def _note(self, name: str) -> None:
        self._numbers.append(_sequence_number())
        self._modules.append(name)

    def _name(self, module: Any) -> str:
        if id(module) not in self._names:
            above = f"{self._stack[-1]}." if self._stack else ""
            for path, inner in module.named_modules():
                self._names.setdefault(id(inner), _WRAPPERS.sub("", above + path).rstrip(".") or type(module).__name__)
        return self._names[id(module)]
