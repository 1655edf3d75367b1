"""How results are shown that a feature brings: cells that were not trained.

The feature's ``result_view.py`` has a VIEW, a ResultView for the class of its ``result.py``. The core shows Result.
"""

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from perfsuite.records.result import CellResult, Result
from perfsuite.system import features


class ResultView(Protocol):
    """What pytest's output, Markdown and pages need of such results. ``of`` is their class, ``title`` heads their table
    in Markdown, and ``options`` are those with which pytest makes them.
    """

    of: type[CellResult]
    title: str
    options: Sequence[str]

    def line(self, result: CellResult) -> str:
        """One cell on one line, for a log that has no table yet."""

    def entries(self, result: CellResult) -> dict[str, str]:
        """A row by its titles; an entry that does not apply is empty."""

    def table(self, results: Sequence[CellResult], width: int) -> str:
        """One row per cell, in at most so many columns."""

    def markdown(self, results: Sequence[CellResult]) -> list[list[str]]:
        """A head, and a row per cell."""

    def evidence(self, result: CellResult) -> Mapping[str, Any]:
        """The fields of the cell's section of a page (show/html/document.py) that tell its numbers."""


@functools.cache
def _views() -> list[ResultView]:
    """Those of all features, looked for once: a page asks for each of its cells."""
    return [module.VIEW for module in features.modules("result_view")]


def view_of(result: CellResult) -> ResultView:
    """That of a result which is no Result."""
    return next(view for view in _views() if isinstance(result, view.of))


def by_view(results: Sequence[CellResult]) -> Iterator[tuple[ResultView, list[CellResult]]]:
    """The results that were not measured, by what shows them."""
    kinds: dict[type[CellResult], list[CellResult]] = {}
    for result in results:
        if not isinstance(result, Result):
            kinds.setdefault(type(result), []).append(result)
    for some in kinds.values():
        yield view_of(some[0]), some
