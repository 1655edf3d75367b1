"""The place of a step: the phase, and the module whose forward runs or, in backward, whose forward made the node.

Global hooks watch modules and optimizers, so nothing is put into the model, and nothing into its graph: a node of the
graph belongs to the module that was running when autograd numbered it. Hooks see nothing in compiled code and would
break its graphs, so a compiled model is not watched, and hooks that torch.compile reads do nothing.
"""

import bisect
import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from perfsuite.rank.session import Session
from perfsuite.rank.torch_types import Module
from perfsuite.rank.users_lines import UsersLines

# Classes that call one module, which they name "module". A user's names are those inside of it.
WRAPPERS = ("DataParallel", "DistributedDataParallel", "FullyShardedDataParallel", "DeepSpeedEngine")
INNER = "module"
UNNUMBERED = 2**64 - 1  # a node that accumulates a gradient (torch/csrc/autograd/functions/accumulate_grad.cpp)


class StepName(str):
    """What runs is an optimizer's step, and no module."""


@contextlib.contextmanager
def watch(model: Module, tell: Callable[[str], None], session: Session) -> Iterator[None]:
    """Inside, ``tell`` is called with a module's path, or an optimizer's class, when its forward or step begins or
    continues, and with "" when none runs. A part that the script names is before the path, or instead of "".
    """
    from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    if any(module._compiled_call_impl for module in model.modules()):
        yield
        return
    of = users_path if session.strategy.engine.own else _path
    names = {module: of(name, model) or type(inner_model(model)).__name__ for name, module in model.named_modules()}
    running = [""]

    told = [""]

    def resume() -> None:
        told[0] = session.phases.part
        tell(type(running[-1])(session.phases.within(running[-1])))

    def enter(name: str) -> None:
        running.append(name)
        resume()

    def leave(*_: Any) -> None:
        running.pop()
        resume()

    def marked(_: str) -> None:
        if told[0] != session.phases.part:
            resume()

    def name_of(module: Module) -> str:
        """A wrapper's forward belongs to its caller. What else a script calls, as a teacher or a loss, has its class,
        and its parts are named within it.
        """
        if session.strategy.engine.own and module not in names and not running[-1]:
            kind = type(inner_model(module)).__name__
            for name, inner in module.named_modules():
                names.setdefault(inner, ".".join(filter(None, (kind, of(name, module)))))
        return names.get(module) or running[-1]

    handles = [
        register_module_forward_pre_hook(_in_eager(lambda module, _: enter(name_of(module)))),
        register_module_forward_hook(_in_eager(leave), always_call=True),
        register_optimizer_step_pre_hook(lambda optimizer, *_: enter(StepName(f"{type(optimizer).__name__}.step"))),
        register_optimizer_step_post_hook(leave),
    ]
    session.phases.listen(marked)
    try:
        yield
    finally:
        session.phases.forget(marked)
        for handle in handles:
            handle.remove()


def _in_eager(hook: Callable[..., None]) -> Callable[..., None]:
    """A hook that does nothing where torch.compile reads it."""
    from torch.compiler import is_compiling

    def hooked(*arguments: Any) -> None:
        if not is_compiling():
            hook(*arguments)

    return hooked


def _path(name: str, model: Module) -> str:
    """The path without the wrappers' parts: ``transformer.h.0._fsdp_wrapped_module.attn``."""
    return ".".join(part for part in name.split(".") if not part.startswith("_"))


def users_path(name: str, model: Module) -> str:
    """The path as the user of a script named its parts, also without those that wrappers name "module"."""
    parts, here = [], model
    for part in filter(None, name.split(".")):
        if not (part == INNER and type(here).__name__ in WRAPPERS) and not part.startswith("_"):
            parts.append(part)
        here = here.get_submodule(part)
    return ".".join(parts)


def inner_model(model: Module) -> Module:
    """What wrappers are around."""
    while type(model).__name__ in WRAPPERS and hasattr(model, INNER):
        model = model.get_submodule(INNER)
    return model


class Whereabouts:
    """Gives the place of a step to code that a dispatch mode calls at every operator. So the last node is known when a
    gradient is accumulated, which has no number of its own.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.phase = ""
        self.module = self.last = ""
        self.numbers: list[int] = []
        self.makers: list[str] = []
        self.users = UsersLines()
        self.lines: dict[int, str] = {}  # of the user's code that made a node, by the node's number
        self.thread = threading.get_ident()  # autograd numbers by thread; CUDA's backward has its own
        session.phases.listen(self._mark)

    def watch(self, model: Module) -> contextlib.AbstractContextManager[None]:
        """Inside, modules are tracked."""
        return watch(model, self._tell, self.session)

    def here(self) -> str:
        """The module's path, or the phase in brackets."""
        import torch

        inside = self.module and not isinstance(self.module, StepName)
        node: Any = None if inside else torch._C._current_autograd_node()
        if node is not None:
            number = node._sequence_nr()
            if number != UNNUMBERED:
                at = bisect.bisect_right(self.numbers, number)
                self.last = self.makers[at - 1] if at else ""
        return (self.last if node is not None else self.module) or self.session.phases.outside(self.phase)

    def line(self, records: bool) -> str:
        """The user's innermost line or, in backward, the one whose forward made the node; empty if there is none.
        ``records``: autograd has made a node for the operator that calls now.
        """
        import torch

        node: Any = torch._C._current_autograd_node()
        if node is not None and (made := self.lines.get(node._sequence_nr())):
            return made
        line = self.users.innermost(sys._getframe(1))
        if records and threading.get_ident() == self.thread:
            self.lines[torch._C._autograd._get_sequence_nr() - 1] = line
        return line

    def _mark(self, phase: str) -> None:
        self.phase = self.session.phases.phase or phase

    def _tell(self, name: str) -> None:
        import torch

        self.module = name
        if threading.get_ident() == self.thread:
            self.numbers.append(torch._C._autograd._get_sequence_nr())
            self.makers.append("" if isinstance(name, StepName) else name)  # a closure may run inside of a step
