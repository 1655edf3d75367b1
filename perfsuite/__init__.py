"""perfsuite: stops LLM-training performance from regressing. Start with `pytest --perf -k zero3`."""

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perfsuite.catalog.definitions import Model, Workload

__all__ = ["Model", "Workload", "step"]


def step() -> None:
    """Say that a training step has ended, in a script whose optimizer is none of torch's. Nothing happens if nobody
    measures.
    """
    attached = sys.modules.get("perfsuite.rank.script.attached")
    if attached:
        attached.step()


def __getattr__(name: str) -> Any:
    """Import on first use: pytest loads this package for its plugin even without perf cells."""
    if name not in __all__:
        raise AttributeError(f"module 'perfsuite' has no attribute {name!r}")
    from perfsuite.catalog import definitions

    return getattr(definitions, name)
