"""Records the life of every storage while a cell is traced: when it comes, when it goes, who made it."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Recorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.events: list[tuple[int, int, int, int]] = []
        self.numbers: dict[str, int] = {"": 0}
        self.live: dict[int, tuple[int, Any]] = {}  # cdata -> number, weakref
        self.sizes: dict[int, int] = {}
        self.count = 0
        self.paused = 0
        self.overrides: dict[Any, Any] = {}
        self.operation = ""

    def number_of(self, name: str) -> int:
        return self.numbers.setdefault(name, len(self.numbers))

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if self.paused:
            return func(*args, **kwargs)
        rule = self.overrides.get(func)
        before = self.operation
        self.operation = str(func)
        try:
            out = rule(self, func, args, kwargs) if rule else func(*args, **kwargs)
            for leaf in tree_leaves(out):
                if isinstance(leaf, torch.Tensor):
                    self.note(leaf)
            return out
        finally:
            self.operation = before

    def note(self, tensor: torch.Tensor) -> int:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self.live:
            return self.live[key][0]
        size = storage.nbytes()
        self.count += 1
        number = self.count

        def gone(_):
            self.live.pop(key, None)
            size = self.sizes.pop(number)
            if size:
                self.events.append((number, -size, 0, 0))

        self.live[key] = (number, weakref.ref(storage, gone))
        self.sizes[number] = size
        if size:
            self.events.append((number, size, self.number_of(self.operation), 0))
        return number

    @contextlib.contextmanager
    def pause(self):
        self.paused += 1
        yield
        self.paused -= 1

    def known(self, tensor):
        found = self.live.get(tensor.untyped_storage()._cdata)
        return found[0] if found else 0
