"""Parameters that two modules were given together, and that are two by now: a move or a load has parted them. And two
that are in one memory, as if they were one.

``to_empty()`` and ``load_state_dict(assign=True)`` make a parameter anew for each module that has it.
"""

import weakref
from collections.abc import Iterator
from types import ModuleType
from typing import Any, NamedTuple

from perfsuite.rank.memory.whereabouts import inner_model
from perfsuite.rank.norms import shards_of, with_storage
from perfsuite.rank.script.probes import plain
from perfsuite.rank.torch_types import Module


class _Holder(NamedTuple):
    """A module, and its name of a parameter."""

    module: weakref.ref[Any]
    name: str


class Ties:
    """Notes which modules are given a parameter that another one has."""

    def __init__(self, torch: ModuleType) -> None:
        self._first: dict[int, tuple[weakref.ref[Any], _Holder]] = {}  # of each parameter, by its id
        self._tied: list[tuple[_Holder, _Holder]] = []
        self._parameter = torch.nn.Parameter
        self.handle = torch.nn.modules.module.register_module_parameter_registration_hook(self._given)

    def _given(self, module: Module, name: str, parameter: Any) -> None:
        if parameter is None:
            return
        holder = _Holder(weakref.ref(module), name)
        known, first = self._first.get(id(parameter), (None, holder))
        if known is None or known() is not parameter:  # an id is used again
            self._first[id(parameter)] = (weakref.ref(parameter), holder)
        elif first.module() is not module:
            self._tied.append((first, holder))

    def parted(self, model: Module) -> Iterator[tuple[str, str]]:
        """The names of two parameters of a model that were one. Shards and parametrizations are no parameters that
        could be compared.
        """
        if not self._tied or shards_of(model):
            return
        names = {id(module): plain(name) for name, module in inner_model(model).named_modules(remove_duplicate=False)}
        for both in self._tied:
            modules = [holder.module() for holder in both]
            if any(id(module) not in names for module in modules):
                continue
            now = [getattr(module, holder.name, None) for module, holder in zip(modules, both, strict=True)]
            if now[0] is not now[1] and all(isinstance(one, self._parameter) for one in now):
                first, second = (
                    f"{names[id(module)]}.{holder.name}".lstrip(".")
                    for module, holder in zip(modules, both, strict=True)
                )
                yield first, second


def in_one_memory(model: Module) -> Iterator[tuple[str, str]]:
    """The names of two trained parameters that have all of their memory in common, as after ``a.data = b.data``."""
    if shards_of(model):
        return
    known: dict[tuple[tuple[int, ...], Any], str] = {}
    for name, one in inner_model(model).named_parameters():
        addresses = tuple(inner.data_ptr() for inner in with_storage(one))
        if one.requires_grad and one.numel() > 1 and all(addresses):
            first = known.setdefault((addresses, one.shape), plain(name))
            if first != plain(name):
                yield first, plain(name)
