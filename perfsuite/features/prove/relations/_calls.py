"""The calls of modules in one forward: which ran, where autograd was cut, and which are no part of the model."""

import gc
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from perfsuite.rank.memory.whereabouts import inner_model
from perfsuite.rank.script.batch_size import tensors_in
from perfsuite.rank.script.probes import ProvedScript, plain
from perfsuite.rank.torch_types import Module


class Strays:
    """Inside, modules are noted that run in a model, but are no part of it: a list hides them. ``found`` are their
    parameters, by the class of the first module and the user's line.
    """

    def __init__(self, script: ProvedScript, model: Module) -> None:
        self.script = script
        self.parts = set(map(id, model.modules()))
        self.found: dict[int, tuple[Any, str, str]] = {}

    def __enter__(self) -> "Strays":
        def enter(module: Module, args: Any) -> None:
            if id(module) not in self.parts:
                for parameter in module.parameters(recurse=False):
                    self.found.setdefault(id(parameter), (parameter, type(module).__name__, self.script.line()))

        self.handle = self.script.torch.nn.modules.module.register_module_forward_pre_hook(enter)
        return self

    def __exit__(self, *_: Any) -> None:
        self.handle.remove()

    def trained(self) -> Iterator[tuple[str, str]]:
        """The class and line of each parameter that gets a gradient, and that no optimizer has."""
        optimized = self.script.optimized
        return ((kind, line) for key, (one, kind, line) in self.found.items() if self._is_lost(key, one, optimized))

    def _is_lost(self, key: int, parameter: Any, optimized: Mapping[int, Any]) -> bool:
        return parameter.requires_grad and parameter.grad is not None and key not in optimized


def outside_of(script: ProvedScript) -> Iterator[tuple[str, Any]]:
    """Parameters of modules that have a trained one as a child, and are not called themselves: a script that calls
    ``self.body(x)`` in a method has more parts than those that an optimizer has. By their names there.
    """
    kind = script.torch.nn.Module
    trained = {id(inner_model(model)) for model in script.models()}
    parts = {id(part) for model in script.models() for part in model.modules()}
    for owner in [one for one in gc.get_objects() if issubclass(type(one), kind) and id(one) not in parts]:
        if any(id(child) in trained for child in owner.children()):
            yield from ((plain(name), parameter) for name, parameter in owner.named_parameters())


class ModuleCall:
    """One call of a module that has parameters of its own."""

    def __init__(self, names: list[str], module: str, recorded: bool, line: str) -> None:
        self.names, self.module, self.recorded, self.line = names, module, recorded, line
        self.goes_on = False  # its inputs have a gradient
        self.gives = False  # its outputs have one
        self.empty = False  # its inputs have no rows, as those of an expert without a token


class CallHooks:
    """Inside, the calls of a model's modules are noted."""

    def __init__(self, script: ProvedScript, model: Module, calls: list[ModuleCall]) -> None:
        self.script, self.model, self.calls = script, model, calls
        self.handles: list[Any] = []

    def __enter__(self) -> None:
        for module_name, module in inner_model(self.model).named_modules():
            own = [name for name, parameter in module.named_parameters(recurse=False) if parameter.requires_grad]
            if not own:
                continue
            path = plain(module_name)
            names = [f"{path}.{name}" if path else name for name in own]

            def enter(_: Any, args: Any, kwargs: Any, names: list[str] = names, path: str = path) -> None:
                call = ModuleCall(names, path, self.script.torch.is_grad_enabled(), self.script.line())
                given = [tensor for _, tensor in tensors_in([args, kwargs])]
                call.goes_on = any(tensor.requires_grad for tensor in given)
                call.empty = bool(given) and not any(tensor.numel() for tensor in given)
                self.calls.append(call)

            def leave(_: Any, args: Any, output: Any, names: list[str] = names) -> None:
                call = next(one for one in reversed(self.calls) if one.names == names)
                values = output if not hasattr(output, "__dict__") or hasattr(output, "shape") else vars(output)
                call.gives = any(tensor.requires_grad for _, tensor in tensors_in(values))

            self.handles.append(module.register_forward_pre_hook(enter, with_kwargs=True))
            self.handles.append(module.register_forward_hook(leave))

    def __exit__(self, *_: Any) -> None:
        for handle in self.handles:
            handle.remove()


def runs_of(calls: Sequence[ModuleCall], gradients: set[str]) -> dict[str, tuple[str, str, str]]:
    """How the module of each parameter ran, what goes on after a cut, and the user's line. A module with which the
    model began before does so again where the model is called twice: that is no cut.
    """
    found: dict[str, tuple[str, str, str]] = {}
    begun: set[tuple[str, ...]] = set()
    for number, call in enumerate(calls):
        if call.empty:
            continue
        later = [one for one in calls[number + 1 :] if gradients.intersection(one.names)]
        cut = next((one for one in later if not one.goes_on and tuple(one.names) not in begun), None)
        if not call.goes_on:
            begun.add(tuple(call.names))
        if not call.recorded:
            how = ("no_grad", "", call.line)
        else:
            how = ("cut", cut.module, cut.line) if cut and call.gives else ("unused", "", call.line)
        for name in call.names:
            found.setdefault(name, how)
    return found
