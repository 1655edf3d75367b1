"""What a trial of many cells says: which cells moved together, how far, and which differ from them."""

import math
from collections.abc import Iterable

from perfsuite.compare.grid_groups import ALL, CELL, REST, Effect
from perfsuite.records.reasons import WithGroup
from perfsuite.records.result import Result
from perfsuite.records.verdict import Line, Verdict
from perfsuite.system.units import show_several


def cells_text(kind: str, name: str, count: int) -> str:
    """``all 23 cells of engine zero3``, ``the 70 other cells``, ``all 93 cells``."""
    if kind == CELL:
        return name
    if kind == ALL:
        return f"all {show_several(count, 'cell')}" if count > 1 else "the cell"
    if kind == REST:
        return f"the {show_several(count, 'other cell')}"
    return f"all {show_several(count, 'cell')} of {kind} {name}"


def range_text(ratio: float, low: float, high: float) -> str:
    """``+3.1 % (2.6 to 3.6)``."""
    middle, ends = 100 * (ratio - 1), sorted((100 * (low - 1), 100 * (high - 1)))
    return f"{middle:+.1f} % ({ends[0]:.1f} to {ends[1]:.1f})"


def effect_text(effect: Effect) -> str:
    """One effect while the trial runs; more is worse."""
    at, cells = effect.interval, cells_text(effect.kind, effect.name, len(effect.cells))
    return f"{cells} {range_text(math.exp(at.estimate), math.exp(at.low), math.exp(at.high))}"


def moved_together(results: Iterable[Result]) -> list[str]:
    """A sentence for every time of several cells that was tried: each group with its change, the worst first."""
    said: dict[str, dict[str, float]] = {}
    titles: dict[str, str] = {}
    for result in results:
        trial = result.verdict.trial
        for line in result.verdict.lines if trial and (trial.whole or _has_group(result.verdict)) else ():
            if (text := _of_line(line, result.measurement.cell)) is not None:
                said.setdefault(line.metric, {})[text] = abs(line.change or 0.0)
                titles[line.metric] = line.title
    return [
        f"{titles[metric]}: {', '.join(sorted(texts, key=lambda text: -texts[text]))}" for metric, texts in said.items()
    ]


def _has_group(verdict: Verdict) -> bool:
    """Whether a time was judged with those of other cells."""
    return any(isinstance(line.reason, WithGroup) for line in verdict.lines)


def _of_line(line: Line, cell: str) -> str | None:
    """None if it is no time that was tried."""
    if line.ratio is None or line.interval is None:
        return None
    why = line.reason
    cells = cells_text(why.kind, why.name, why.cells) if isinstance(why, WithGroup) else cell
    return f"{cells} {range_text(line.ratio, line.interval.low, line.interval.high)} {line.status}"
