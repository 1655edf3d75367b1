"""Memory that is kept, and memory that is not there."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from perfsuite.rank.faults import exchange

if TYPE_CHECKING:
    from perfsuite.rank.session import Session


def leak(session: Session, trainer: Any, meters: Any) -> None:
    """After every step, one more tensor stays alive."""
    import torch

    kept: list[Any] = []
    session.phases.listen(lambda phase: kept.append(torch.zeros(16)) if phase == "end" else None)


def _extra(size: int, session: Session, trainer: Any, meters: Any) -> None:
    import torch

    trainer.model.register_forward_pre_hook(
        functools.partial(lambda kept, module, arguments: None, torch.zeros(size, dtype=torch.uint8))
    )


def keeps_copies(session: Session, trainer: Any, meters: Any) -> None:
    """Autograd keeps a copy of every tensor that it keeps, as offloading does."""
    import torch

    def around() -> Any:
        return torch.autograd.graph.saved_tensors_hooks(torch.clone, lambda kept: kept)

    exchange(session, around=around)


def small_device(session: Session, trainer: Any, meters: Any) -> None:
    """The device has 4 MB."""
    if session.memory:
        session.memory.source.set_capacity(4_000_000)


def __getattr__(name: str) -> Callable[..., None]:
    kind, _, size = name.partition("_")
    if kind != "extra" or not size.isdecimal():
        raise AttributeError(f"no fault is named {name!r}")
    return functools.partial(_extra, int(size))
