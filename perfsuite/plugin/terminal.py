"""What a run writes to the terminal or to a log: a line per cell, how far the run is, and the summary at its end."""

import statistics
import textwrap
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from perfsuite.catalog.definitions import Metric
from perfsuite.records.result import CellResult, Result
from perfsuite.show.result_views import by_view
from perfsuite.show.text.life import moved
from perfsuite.show.text.open_cells import open_times
from perfsuite.show.text.run_summary import WIDTH, asides, render_summary
from perfsuite.system.units import show_rough


class Pace:
    """How far a run is, and how long the rest takes: from the cells' recorded times, at the pace of this run.

    ``expected`` has the recorded seconds of each test, None if there are none: it then counts as the median test.
    """

    def __init__(self, expected: Mapping[str, float | None]) -> None:
        usual = statistics.median([one for one in expected.values() if one] or [1.0])
        self._recorded = any(expected.values())
        self._left = {name: seconds or usual for name, seconds in expected.items()}
        self._all, self._total = len(self._left), sum(self._left.values())
        self._begin = time.monotonic()

    def done(self, name: str) -> None:
        """A test has ended."""
        self._left.pop(name, None)

    def seconds_left(self, elapsed: float) -> float | None:
        """None before the first test has ended, if no time is recorded."""
        left = sum(self._left.values())
        if left == self._total:
            return left if self._recorded else None
        return elapsed / (self._total - left) * left

    def __bool__(self) -> bool:
        """Whether the tests are known: not where pytest-xdist's workers have them."""
        return bool(self._all)

    def __str__(self) -> str:
        """``3/11, about 2 min left``, without the time if nothing tells it; empty if the tests are not known."""
        if not self._all:
            return ""
        seconds = self.seconds_left(time.monotonic() - self._begin) if self._left else None
        return f"{self._all - len(self._left)}/{self._all}" + (
            "" if seconds is None else f", about {show_rough(seconds)} left"
        )


def width_of(reporter: Any) -> int:
    """The columns of the terminal, at most WIDTH; those of a log are WIDTH."""
    return min(reporter.config.get_terminal_writer().fullwidth, WIDTH) if reporter.isatty else WIDTH


def write(reporter: Any, text: str, **color: bool) -> None:
    """Write a sentence in as many lines as it needs; a path or a command is not broken."""
    width = width_of(reporter)
    for line in textwrap.wrap(text, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False):
        reporter.write_line(line, **color)


def write_summary(
    reporter: Any,
    cells: Sequence[CellResult],
    skipped: Mapping[str, int],
    metrics: Iterable[Metric],
) -> None:
    """The reasons of skipped cells, the tables of all others, and every baseline that was written."""
    width, metrics = width_of(reporter), list(metrics)
    results = [cell for cell in cells if isinstance(cell, Result)]
    for reason, count in skipped.items():
        write(reporter, f"{count} skipped: {reason}")
    for view, others in by_view(cells):
        reporter.write_line(view.table(others, width))
    if not results:
        return
    reporter.write_line(render_summary(results, metrics, width, color=reporter.config.get_terminal_writer().hasmarkup))
    for sentence in [*asides(results, metrics), *open_times(results)]:
        write(reporter, sentence)
    for result in results:
        for sentence in tell_update(result, metrics):
            reporter.write_line(sentence)


def tell_update(result: Result, metrics: Iterable[Metric]) -> list[str]:
    """The lines for a baseline that was written: how it changes."""
    if not result.updated:
        return []
    metrics, old = list(metrics), result.baseline.measurement if result.baseline else None
    changes = moved(old, result.measurement, metrics)
    return [f"baseline {'changed' if result.baseline else 'new'}: {result.updated}", *(f"  {line}" for line in changes)]
