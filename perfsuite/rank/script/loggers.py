"""The libraries that log a script's numbers: their functions tell what they log (logged.py)."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

from perfsuite.rank.script.logged import Logged
from perfsuite.rank.script.watched import replace


def watch_log(module: ModuleType, logged: Logged) -> None:
    """Put the hooks into the module of transformers' Trainer, of Accelerate's Accelerator or of Lightning's Trainer."""
    owner: Any = getattr(module, "Accelerator" if module.__name__.startswith("accelerate") else "Trainer", None)
    if hasattr(owner, "callback_metrics"):
        replace(owner, "__init__", lambda make: _making(logged, make))
    elif hasattr(owner, "log"):
        replace(owner, "log", lambda log: _logging(logged, log))


def _logging(logged: Logged, log: Callable[..., Any]) -> Callable[..., Any]:
    def logging(self: Any, *args: Any, **kwargs: Any) -> Any:
        logged.log(args[0] if args else next(iter(kwargs.values()), None))
        return log(self, *args, **kwargs)

    return logging


def _making(logged: Logged, make: Callable[..., None]) -> Callable[..., None]:
    def making(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        logged.watch(self)

    return making
