"""perfsuite: stops LLM-training performance from regressing. Start with `pytest --perf -k zero3`."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perfsuite.catalog.definitions import Model, Workload

__all__ = ["Model", "Workload", "part", "phase", "step"]


def step() -> None:
    """Say that a training step has ended, in a script whose optimizer is none of torch's. Nothing happens if nobody
    measures.
    """
    if attached := _attached():
        attached.step()


def phase(name: str) -> contextlib.AbstractContextManager[None]:
    """Inside, the time of a step is this phase's, in a script; of phases in each other, the innermost's. Nothing
    happens if nobody measures.
    """
    attached = _attached()
    return attached.named("phase", name) if attached else contextlib.nullcontext()


def part(name: str) -> contextlib.AbstractContextManager[None]:
    """Inside, the memory and the operators of a script belong to this part of it: ``reward model.h.0.mlp``. Nothing
    happens if nobody measures.
    """
    attached = _attached()
    return attached.named("part", name) if attached else contextlib.nullcontext()


def _attached() -> Any:
    """The module that measures this process, if one does."""
    return sys.modules.get("perfsuite.rank.script.attached")


def __getattr__(name: str) -> Any:
    """Import on first use: pytest loads this package for its plugin even without perf cells."""
    if name not in __all__:
        raise AttributeError(f"module 'perfsuite' has no attribute {name!r}")
    from perfsuite.catalog import definitions

    return getattr(definitions, name)
