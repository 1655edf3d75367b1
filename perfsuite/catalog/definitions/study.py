"""A study: one question, and the cells that answer it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A row or a column of a study: how its cells differ from the study's defaults.

    The row or the column names the engine; the techniques of both are joined. ``ranks`` are the cell's, ``micro_batch``
    is the samples per rank at once, and ``global_batch`` those of all ranks at once. ``larger`` selects the next larger
    model of the family, with the same workload. ``note`` has figures that others published.
    """

    name: str = ""
    engine: str = ""
    techniques: tuple[str, ...] = ()
    ranks: int | None = None
    micro_batch: int | None = None
    global_batch: int | None = None
    larger: bool = False
    note: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Study:
    """One question, the cells that answer it, and how the answer follows from them.

    ``rows`` × ``columns`` are the cells, by default on ``model`` and ``hardware``; ``columns`` may depend on the number
    of ranks. Numbers are shown with their ratio to the ``reference`` row of the same column, or to the
    ``reference_column`` of the same row. ``answer`` is called with the results of one model
    (features/studies/_study_rows.py) and returns sentences. ``asked`` quotes who asks the question.

    A study with a ``forecast`` measures nothing. It is called with models, hardware and the catalog, and returns rows
    of perfsuite.features.studies._forecast, which ``answer`` gets instead. ``units`` are those of their columns.
    """

    name: str
    question: str
    asked: str
    model: str
    hardware: str
    rows: tuple[Variant, ...] = ()
    columns: tuple[Variant, ...] | Callable[[int], tuple[Variant, ...]] = (Variant(),)
    reference: str = ""
    reference_column: str = ""
    metrics: tuple[str, ...] = ("peak_memory_bytes", "step_time_seconds", "tokens_per_second", "flops_per_rank")
    answer: Callable[[Any], list[str]]
    forecast: Callable[[Any, Any, Any], Any] | None = None
    units: Mapping[str, str] = field(default_factory=dict)
